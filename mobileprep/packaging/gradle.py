"""What every app.gradle says of the model, and of the code that runs it."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.packaging.targets import Abi


def copied_model(name: str, model: str, abis: Sequence[Abi]) -> str:
    """Lines that copy a model among the app's assets, and choose its binary interfaces.

    Args:
        name: the recipe's.
        model: the model file.
        abis: what the app is built for.
    """
    named = ", ".join(f"'{abi.name}'" for abi in abis)
    return f"""\
def folder = buildscript.sourceFile.parentFile
def assets = layout.buildDirectory.dir('mobileprep/{name}').get().asFile
def copied = tasks.create(name: 'copyModel_{name}', type: Copy) {{
    from folder
    include '{model}', '{name}_labels.txt', 'assets/**'
    into assets
}}
tasks.matching {{ it.name == 'preBuild' }}.all {{ dependsOn copied }}
def code = ['java', 'kotlin'].collect {{ new File(folder, "integration/$it") }}
def classes = code.collect {{ fileTree(it).files*.name*.replaceAll(/\\.\\w+$/, '') }}
def packing = android.hasProperty('androidResources') ? 'androidResources' : 'aaptOptions'

android.defaultConfig.ndk.abiFilters {named}"""


def packed_model(model: str) -> str:
    """Lines that take what ``copied_model`` names into the app, the model as it is."""
    extension = model.rpartition(".")[2]
    return f"""\
// A compressed file cannot be mapped into memory.
android."$packing".noCompress '{extension}'
android.sourceSets.main.assets.srcDir assets
// A class that is there in both languages is taken in Java.
(classes[0].disjoint(classes[1]) ? code : code.take(1)).findAll {{ it.directory }}.each {{
    android.sourceSets.main.java.srcDir it
}}"""
