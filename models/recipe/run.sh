#!/bin/sh
# The whole recipe: sh models/recipe/run.sh DATA WORK [options of models.recipe.train]
# An evening on two cores. Run it again with the same WORK to go on: what is rendered stays, and training resumes.
# With little time, `--minutes 60` ends the schedule then; without it the seed decides the weights.
set -eu
data=$1 work=$2
shift 2
# Tensors of many megabytes come and go: keep their memory instead of returning it to the system each time.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_ARENA_MAX=1
python=${PYTHON:-python}
[ -f "$work/scenes/about.json" ] || "$python" -m models.recipe.render --data "$data" --out "$work/scenes"
resume=
[ -f "$work/last.pt" ] && resume=--resume
"$python" -m models.recipe.train --scenes "$work/scenes" --out "$work" $resume "$@"
"$python" -m models.recipe.export "$work/last.pt" "$work/bundle"
"$python" -m models.recipe.evaluate --bundle models/mini --bundle "$work/bundle" --data "$data" --out "$work/figures.json"
