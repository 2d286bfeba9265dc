"""An app's own tasks beside those of its recipes: ``doit`` builds all, ``doit list`` names them."""

from mobileprep import recipe_tasks

DOIT_CONFIG = {"default_tasks": ["assets"]}


def task_recipe():
    """The stages and target folders of every recipe below recipes/."""
    yield from recipe_tasks("recipes", "out")


def task_assets():
    """The model among the app's assets; it waits for the folder that the model is published in."""
    return {
        "actions": ["mkdir -p assets", "cp %(dependencies)s %(targets)s"],
        "file_dep": ["out/digits/phone/digits.pb"],
        "targets": ["assets/digits.pb"],
        "clean": True,
    }
