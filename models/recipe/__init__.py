"""The recipe of the small bundle that ships: data engine, model, training, export, evaluation.

Run from the repository root, with `pip install 'sam2label[recipe]'`:

    python -m models.recipe.render   --data DATA --out SCENES         # scenes and clips, rendered to compact files
    python -m models.recipe.train    --scenes SCENES --out RUN        # resumable; cuda, mps or cpu
    python -m models.recipe.export   RUN/last.pt OUT                  # a bundle
    python -m models.recipe.evaluate --bundle OUT --data DATA         # every figure of the model card
"""
