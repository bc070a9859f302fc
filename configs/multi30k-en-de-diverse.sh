#!/bin/sh
# All commands of the recipe multi30k-en-de-diverse.yaml: train three models from English to German and one from German to
# English, translate the training set with them, and train the last model on all pairs. Run it in the folder that contains
# data/multi30k (made by s2s fetch multi30k), or set S2S_DATA:
#
#   sh configs/multi30k-en-de-diverse.sh
#
# Runs are written to runs/, and pairs to multi30k-pairs/. If the recipe is stopped or killed, the same command continues.
# Options, such as --set training.threads=4, are passed to each training.
set -eu
configs=$(dirname "$0")
train=${S2S_DATA:-data}/multi30k/train
zipped=
if [ -e "$train.en.gz" ]; then zipped=.gz; fi

finished() { # a training that was interrupted saves and ends without an error, but has no scores of the test sets
  [ -e "$1/test_scores.json" ] || { echo "$1 was stopped; the same command continues" >&2; exit 1; }
}

for seed in 1 2 3; do
  s2s train "$configs/multi30k-en-de.yaml" --run-dir "runs/en-de-$seed" --set seed=$seed \
    --set training.max_epochs=12 "$@"
  finished "runs/en-de-$seed"
done
s2s train "$configs/multi30k-de-en.yaml" --run-dir runs/de-en "$@"
finished runs/de-en
s2s augment runs/en-de-1 runs/en-de-2 runs/en-de-3 --text "$train.en$zipped" --kind forward --beam-size 5 \
  -o multi30k-pairs/forward
s2s augment runs/de-en --text "$train.de$zipped" --kind back --beam-size 5 -o multi30k-pairs/backward
s2s train "$configs/multi30k-en-de-diverse.yaml" --run-dir runs/en-de-diverse "$@"
