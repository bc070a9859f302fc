"""The bytes of a stored folder, and their damage; tests of what is stored compare and flip them."""


def snapshot(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip_a_bit(path, place=0.7):
    content = bytearray(path.read_bytes())
    content[int(len(content) * place)] ^= 1
    path.write_bytes(bytes(content))
