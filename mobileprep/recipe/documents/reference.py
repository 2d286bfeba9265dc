"""Makes the recipe reference, ``docs/recipe.md``, from the schema."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.recipe.schemas import Schema

_INTRODUCTION = """\
# The recipe

<!-- Made by `python tools/make_schemas.py`. -->

A recipe says where a trained model lies, what is done to it, and what ships for each target. It is
a YAML file. Name its schema in the first line, and an editor with the YAML language server
completes and checks while you write. `mobileprep init` writes the line, and
`mobileprep schema --modeline recipe.yaml` prints it for another recipe:

```yaml
# yaml-language-server: $schema=../../schemas/recipe.schema.json
version: 1
name: digits
source: {graph: model/graph.pbtxt, checkpoint: model/model.ckpt-1000}
inputs:
  image: {dtype: float32, shape: [-1, 8, 8, 1]}
outputs: [probabilities]
transforms:
  - strip_unused_nodes
  - remove_nodes: {op: [Identity, CheckNumerics]}
  - fold_constants: {ignore_errors: true}
targets:
  phone: {platform: android, quantize: weights}
```

`mobileprep validate RECIPE` tells all problems of a recipe at once, each at its
`file:line:column`. It opens the models too: wrong names of inputs and outputs, with the nearest
ones, types, shapes, inputs that no output needs, and data that does not fit, labels among it; and
packages that the recipe needs and that are not installed. With `--no-files` it looks at nothing but
the recipe.

The schema has every transform with its parameters. Keep a copy of it in the repository, next to the
recipes or in a directory above: `mobileprep schema > recipe.schema.json`. The line names that copy,
or `recipe.schema.json` next to the recipe as long as there is none, and so is the same on every
machine. `mobileprep schema --path` prints the path of the installed schema. The printed schema
also has the transforms of installed packages. In a recipe with `plugins` or `extends`, the editor
accepts unknown names of transforms, because it cannot read the plugins; `validate` does.

## How it is read

- YAML 1.2: only `true` and `false` are truth values, so `no` and `on` are names; `010`, `0x1f`,
  `1:30` and dates are text; `1e-3` is a number. Put a version such as `"1.15"` in quotes.
- A key given twice, a tag (`!!str`), a second document and a key that is no text are errors.
  Anchors, aliases and merge keys (`<<: *common`) may be used.
- A file has at most 1 MiB, 100 levels, and 10,000 values with aliases counted as often as used.
- Every path starts at the folder of the file that names it.

## Variables

`${NAME}` in a value stands for the value that `--set NAME=VALUE` gives, or else for the environment
variable. `${NAME:-default}` has a default for a variable that is missing or empty; `$$` is a dollar
sign. A variable without a value is an error. An unquoted value is read after replacing, so that
`num_steps: ${STEPS:-256}` is a number, and so is that of `{mode: round, num_steps: ${STEPS:-256}}`;
a quoted one stays text. A value is never more than text, a number or a truth value: what it holds
is not read as YAML. A default has no braces, and where it has quotes or a backslash, the whole
value stands in quotes: `"${GREETING:-it's}"`. Keys are left as they are. Braces inside `{ }` are no
plain YAML, so that an editor may mark an unquoted variable there; the build takes it.

## One recipe over another

`extends: ../common.yaml` lays a recipe over another one. A target's sections are laid over the
recipe's in the same way, and so is each entry of `models`:

- mappings merge key by key;
- lists, texts and numbers replace what is below;
- `null` removes what is below;
- `source`, `quantize` and `data` replace as a whole, because their keys belong together.

A target's `transforms` therefore replaces the shared chain, while `then` goes on from it.

## Several models

With `models`, each model is built for every target that stands beside it, and `null` for a target
inside a model leaves that one out. Outputs then go to `OUT/<recipe>/<model>/<target>/` instead of
`OUT/<recipe>/<target>/`.

```yaml
version: 1
name: speech
transforms: [strip_unused_nodes, fold_constants]
models:
  wake: {source: {frozen: wake.pb}, outputs: [scores]}
  words: {source: {saved_model: words}, outputs: [labels]}
targets:
  phone: {platform: android, quantize: weights}
```

## Transforms

`transforms` is a list. An item is a transform's name, or its name with parameters:

```yaml
transforms:
  - fold_batch_norms
  - remove_nodes: {op: [Identity, CheckNumerics]}
  - strip_unused_nodes:            # parameters that repeat in parallel
      - {name: image, type_for_name: float, shape_for_name: "1,8,8,1"}
      - {name: keep, type_for_name: bool, shape_for_name: "1"}
```

It may also be a chain in the language of the Graph Transform Tool's `--transforms` flag:

```yaml
transforms: >
  strip_unused_nodes(type=float, shape="1,8,8,1")
  remove_nodes(op=Identity, op=CheckNumerics)
  fold_constants(ignore_errors=true)
```

Both forms are checked against `schemas/transforms/<name>.json`. The text form is read as the
original reads it: a comma stands directly after the value before it, no white space stands before
`)`, and a value with other characters than letters, digits and `-./_` takes double quotes. White
space between a name and its `(`, which the original refuses and a book prints, is read over with a
warning. A last transform without `)`, which the original drops in silence, is an error.

A target's chain is the shared one or its own `transforms`, then its `then`, then what `quantize`,
`obfuscate` and `sort` add, in this order.

## Inputs and outputs

Each build verifies that the app has to feed the declared inputs and nothing else:

| found | result |
|---|---|
| an output needs a placeholder without a default that is not an input | exit code 5, naming both |
| an input has no effect, because another input is computed from it | exit code 5, naming both |
| no output needs an input | exit code 5; `validate` reports it too |
| the prepared model does not use an input, single values and truth values aside | a warning |
| the inputs cut off more than half of the parameters behind the outputs | a warning |

The last one is right for a recipe that ships the end of a network alone. Otherwise the inputs are
too far inside: those of TensorFlow for Poets are the image, not the bottleneck. A recipe without
`inputs` is not checked.

## Checks

With `check: true` the build runs the graph after each transform, and then the packaged file, on a
few samples, and compares the outputs with those of the source. It fails if one of them does not
run, has another output shape, or gives NaN or infinity where the source does not, and names the
step or the file. With a limit it also fails if an output is too far off. A failed build keeps the
published files of the build before:

```yaml
check: {data: data/pictures.npz, max_difference: 0.01}
```

`data` is an `.npz` file as `numpy.savez` writes it, with an array for each input under the
input's name, or data of another kind, as [quantization.md](quantization.md#data) has it. The first
axis of an array counts the samples; an input without an axis for samples has one more in front, or
none where its value is the same for all. Without `data`, the validation's test set is used.

The packaged file is read back as [validation](validation.md#what-is-measured) reads it. A
`.tflite` file is converted after the last transform, so that the lines of the steps are about the
graph before conversion, and say so; LiteRT's interpreter (`pip install 'mobileprep[litert]'`)
runs the file. With `engine: graph` the graph before conversion takes its place.

The difference is told twice. `largest_difference` is the largest absolute difference of any
element of any output, in the output's own unit. `share_of_peak` is that of the output that is
furthest off, divided by the largest magnitude that the source gives for this output on the
samples: 0.01 is one percent of the peak. `max_difference` limits the share, because one number
then fits scores from 0 to 1, logits up to 30 and coordinates up to 400. Truth values, text and
whole numbers of 32 and 64 bits name or count things, such as the classes of a segmentation: their
share is that of the elements that differ. Where the source gives nothing but zeros, the share is
the difference itself.

Without `data` and `validation`, samples are drawn, the same in each build. They are smooth scenes
with edges, tones, or rows of features, as the shapes of the inputs suggest, in the range that the
graph shows: the whole of a type of 8 bits, what the first operations scale, less a mean, to about
-1 to 1, the rows of the table that an input chooses from, the ranges of fake quantization and of
a first batch normalisation. Where nothing shows it, the first of 0 to 1, -1 to 1 and 0 to 255 is
taken to which the outputs answer. The probability of a dropout gets the value with which it
changes nothing. Open dimensions (-1) get the first sizes with which the model runs, one size in
all inputs; sizes with which loops run more than once come first, and a warning says if only
sequences of length one fit. Inputs of text cannot be drawn, but for sound files. The report tells
what was fed.

Networks answer to drawn samples less than to real ones. Where the outputs hardly move from sample
to sample, or are empty, a warning says so: the check then proves little. If the source itself
gives NaN or infinity, the samples are unusable: the message names the output and what was fed.
Data of the app's own is always better, and a `max_difference` means most with it.

# Keys
"""

# Sections of the schema in the order of the page, with their headings.
_SECTIONS = (
    ("cache", "`cache`"),
    ("source", "`source`"),
    ("freeze", "`freeze`"),
    ("inputs", "`inputs`"),
    ("outputs", "`outputs`"),
    ("transforms", "`transforms`"),
    ("check", "`check`"),
    ("calibration", "`calibration`"),
    ("validation", "`validation`"),
    ("data", "`data`"),
    ("feature", "`data.features.<input>`"),
    ("metric_choice", "`validation.metrics`"),
    ("metric", "`validation.metric`"),
    ("model", "`models.<name>`"),
    ("target", "`targets.<name>`"),
    ("quantize", "`targets.<name>.quantize`"),
    ("custom_op", "`ops.<name>`"),
)
_TYPES = {
    "object": "mapping",
    "array": "list",
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true` or `false`",
}

_PLURALS = {"string": "texts", "integer": "whole numbers", "object": "mappings"}


def render(schema: Schema) -> str:
    """The whole page, in Markdown."""
    lines = [_INTRODUCTION, "## Top level", "", *_table(schema, schema)]
    for name, heading in _SECTIONS:
        lines += ["", f"## {heading}", "", *_section(schema, schema["$defs"][name])]
        for key, child in _properties(schema["$defs"][name]).items():
            if "$ref" not in child and _properties(child):
                heading_of_child = f"{heading.removesuffix('`')}.{key}`"
                lines += ["", f"## {heading_of_child}", "", *_section(schema, child)]
    return "\n".join(lines) + "\n"


def _section(root: Schema, section: Schema) -> Iterator[str]:
    yield section["description"]
    values = section.get("additionalProperties")
    if _properties(section):
        yield ""
        yield from _table(root, section)
    elif isinstance(values, dict) and "$ref" in values:
        of_each = _resolved(root, values)
        yield ""
        yield f"Each entry: {of_each['description'][0].lower()}{of_each['description'][1:]}"
        yield ""
        yield from _table(root, of_each)


def _table(root: Schema, section: Schema) -> Iterator[str]:
    yield "| key | value | default | |"
    yield "|---|---|---|---|"
    for key, child in _properties(section).items():
        described = _resolved(root, child)
        default = f"`{_plain(described['default'])}`" if "default" in described else ""
        meaning = described.get("description", "")
        yield f"| `{key}` | {_type(root, described)} | {default} | {meaning} |"


def _properties(section: Schema) -> Schema:
    properties: Schema = section.get("properties") or section.get("else", {}).get("properties", {})
    return properties


def _resolved(root: Schema, described: Schema) -> Schema:
    """A schema with its reference followed; keywords beside the reference come first."""
    reference = described.get("$ref")
    if reference is None:
        return described
    return {**_resolved(root, root["$defs"][reference.rpartition("/")[2]]), **described}


def _type(root: Schema, described: Schema) -> str:
    if "const" in described:
        return f"`{_plain(described['const'])}`"
    if "enum" in described:
        return ", ".join(f"`{value}`" for value in described["enum"])
    kinds = described["type"]
    listed = [kinds] if isinstance(kinds, str) else [kind for kind in kinds if kind != "null"]
    words = [_TYPES[kind] for kind in listed]
    if listed == ["array"]:
        items = _resolved(root, described["items"])
        words = [f"list of {_PLURALS.get(str(items.get('type')), _type(root, items))}"]
    return " or ".join(words)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).replace("'", '"')
