#!/bin/sh
# Render and train where a GPU is lent for minutes: sh models/recipe/run_gpu.sh DATA OUT [MINUTES] [more train options]
# Needs PyTorch, numpy and Pillow there; export and evaluate OUT/last.pt at home, or go on from it with --resume.
set -eu
data=$1 out=$2 minutes=${3:-7}
shift "$(($# < 3 ? $# : 3))"
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1
mkdir -p "$out"
scenes=$(mktemp -d)
"$python" -m models.recipe.render --data "$data" --out "$scenes" --scenes 16000 --clips 3200
"$python" -m models.recipe.train --scenes "$scenes" --out "$out" --minutes "$minutes" --steps 100000 \
    --images 48 --clicks 4 --clips 12 --objects 3 --rate 0.002 --clips-from 0.55 \
    --widths '[24, 48, 96, 128, 192]' --decoder '[64, 80, 128]' "$@"
rm -r "$scenes"
