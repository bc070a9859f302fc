#!/bin/sh
# All commands of the recipe multi30k-en-de-diverse.yaml: three models from English to German, one from German to English,
# their translations of the training set, and the model that learns from these. In the folder of `data/multi30k`
# (s2s fetch multi30k), or with S2S_DATA set:
#
#   sh configs/multi30k-en-de-diverse.sh
#
# Runs are in runs/, and pairs in multi30k-pairs/. If it was stopped or killed, the same command continues. Options such
# as --set training.threads=4 are given to each training.
set -eu
trap 'exit 130' INT TERM # a training saves when it is interrupted; the next command must not begin
configs=$(dirname "$0")
train=${S2S_DATA:-data}/multi30k/train
zipped=
if [ -e "$train.en.gz" ]; then zipped=.gz; fi

for seed in 1 2 3; do
  s2s train "$configs/multi30k-en-de.yaml" --run-dir "runs/en-de-$seed" --set seed=$seed \
    --set training.max_epochs=12 "$@"
done
s2s train "$configs/multi30k-de-en.yaml" --run-dir runs/de-en "$@"
s2s augment runs/en-de-1 runs/en-de-2 runs/en-de-3 --text "$train.en$zipped" --kind forward --beam-size 5 \
  -o multi30k-pairs/forward
s2s augment runs/de-en --text "$train.de$zipped" --kind back --beam-size 5 -o multi30k-pairs/backward
s2s train "$configs/multi30k-en-de-diverse.yaml" --run-dir runs/en-de-diverse "$@"
