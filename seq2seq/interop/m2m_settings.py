"""The tables by which `interop.m2m` reads M2M-100, NLLB-200 (dense) and mBART: settings, tokenizers, languages.

LayerDrop, which acts in training alone, is the one setting of these configurations that is not applied.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

from seq2seq.interop.marian_settings import Family

# What M2M100Config and MBartConfig of transformers take where a key is missing.
_BOTH: dict[str, Any] = {
    "d_model": 1024, "max_position_embeddings": 1024,
    "encoder_layers": 12, "encoder_ffn_dim": 4096, "encoder_attention_heads": 16,
    "decoder_layers": 12, "decoder_ffn_dim": 4096, "decoder_attention_heads": 16,
    "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
    "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True,
    "pad_token_id": 1, "eos_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
_FIXED = {"norm_position": "pre", "norm": "layer", "norm_epsilon": 1e-5}
_ONLY = {
    "is_encoder_decoder": True, "is_decoder": False, "normalize_before": True, "add_bias_logits": False,
    "share_encoder_decoder_embeddings": True, "tie_word_embeddings": True, "num_experts": 0,
}  # fmt: skip
M2M = Family(
    {**_BOTH, "vocab_size": 128112, "activation_function": "relu", "attention_dropout": 0.1, "scale_embedding": True,
     "decoder_start_token_id": 2},
    {**_FIXED, "positions": "sinusoidal", "position_layout": "halves", "position_formula": "fairseq",
     "position_offset": 2, "embedding_norm": False},
    {**_ONLY, "normalize_embedding": False, "static_position_embeddings": True},
)  # fmt: skip
MBART = Family(
    {**_BOTH, "vocab_size": 50265, "activation_function": "gelu", "scale_embedding": False,
     "decoder_start_token_id": None},
    {**_FIXED, "positions": "learned", "embedding_norm": True},
    {**_ONLY, "normalize_embedding": True, "static_position_embeddings": False, "add_final_layer_norm": True,
     "extra_pos_embeddings": 2},
)  # fmt: skip
# Rows of the table of learned positions before the first position.
POSITION_OFFSET = 2


@dataclass(frozen=True)
class TokenizerKind:
    """How one class of transformers' tokenizers numbers pieces and places tags."""

    codes: str
    """The languages, in the order of their ids, where the folder does not list them."""
    pattern: re.Pattern[str]
    """Pattern of the pieces of languages; its group is the name."""
    piece: str
    """The piece of a language, by its name."""
    source: Literal["first", "last"] = "first"
    target: Literal["second", "first"] = "second"


_M2M_CODES = """
af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig
ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl
so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
"""
_WMT21_CODES = "en ha is ja cs ru zh de"
_MBART25_CODES = """
ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX ro_RO
ru_RU si_LK tr_TR vi_VN zh_CN
"""
_MBART50_CODES = f"""{_MBART25_CODES}
af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN
th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
"""
_NLLB_CODES = """
ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab arb_Arab ars_Arab ary_Arab
arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng
bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn
cym_Latn dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn ewe_Latn fao_Latn
pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn
hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn
jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn kea_Latn
khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn lao_Laoo lvs_Latn lij_Latn lim_Latn lin_Latn
lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn
mkd_Cyrl plt_Latn mlt_Latn mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva
nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn por_Latn prs_Arab pbt_Arab
quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn
sna_Latn snd_Arab som_Latn sot_Latn spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn
tam_Taml tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn tso_Latn tuk_Latn
tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn
xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans zho_Hant zul_Latn
"""
_UNDERLINED = re.compile("__([a-z]{2,8})__")
_SCRIPTS, _REGIONS = re.compile("([a-z]{2,8}_[A-Z][a-z]{3})"), re.compile("([a-z]{2,3}_[A-Z]{2})")
# By the name of the class, without Fast.
TOKENIZERS = {
    "M2M100Tokenizer": TokenizerKind(_M2M_CODES, _UNDERLINED, "__{}__"),
    "NllbTokenizer": TokenizerKind(_NLLB_CODES, _SCRIPTS, "{}"),
    "MBart50Tokenizer": TokenizerKind(_MBART50_CODES, _REGIONS, "{}"),
    "MBartTokenizer": TokenizerKind(_MBART25_CODES, _REGIONS, "{}", source="last", target="first"),
}
# By `language_codes` of tokenizer_config.json, of M2M-100 alone.
LANGUAGE_CODES = {"m2m100": _M2M_CODES, "wmt21": _WMT21_CODES}
