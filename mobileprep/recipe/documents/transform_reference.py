"""Makes the transform reference, ``docs/transforms.md``, from the schemas."""

from __future__ import annotations

from collections.abc import Container, Iterator

from mobileprep.recipe.schemas import Schema, TransformSchemas

_FORMATS = {"path": "file", "checkpoint": "checkpoint"}
_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true`, `false`"}
_INTRODUCTION = """\
# Transforms

<!-- Made by `python tools/make_schemas.py`. -->

A chain of transforms stands in a recipe, as a list or as the original tool's own text:

```yaml
transforms:
  - strip_unused_nodes
  - remove_nodes: {op: [Identity, CheckNumerics]}
  - fold_constants: {ignore_errors: true}
```

```yaml
transforms: 'strip_unused_nodes remove_nodes(op=Identity) fold_constants(ignore_errors=true)'
```

and on the command line, with the flags of the original `transform_graph`:

```console
$ mobileprep transform --in_graph=frozen.pb --out_graph=small.pb \\
    --inputs=image --outputs=probabilities \\
    --transforms='strip_unused_nodes fold_constants(ignore_errors=true)'
```

A parameter that is a file or a checkpoint is a path: in a recipe from the folder of the recipe, and
what the files hold is part of what decides whether the step runs again. On the command line it is
a path from the current folder.

What is known to go wrong is told before it runs: `remove_nodes(op=Identity)` on a graph with
control flow, `quantize_nodes` before the batch norms are folded, `quantize_weights` a second time.
What the chain alone shows of this, `mobileprep validate` and `plan` tell too. With `check: true` in
the recipe, or `--check` on the command line, the graph is run on sample inputs after each step and
the largest output difference told; a step after which the graph does not run, or gives no numbers,
is named and ends the run.

Not knowing better, write `optimize`: `mobileprep init` does, in the chain

```yaml
transforms:
  - choose_inference
  - remove_nodes: {op: [CheckNumerics]}
  - optimize
```

after which no batch norm is left behind a convolution or a matrix product that nothing else uses,
only a bias. The report tells for each transform how many places it left as they were, and why, and
warns of batch norms that the whole chain left although another transform, or another order, would
fold them. `mobileprep transform` tells the bytes of both files, and warns of constants that a step
copied, as the original's `fold_constants` does with each that is read through an Identity.

Every transform takes `ignore_errors`: when it fails, the graph stays as it was, with a warning. In
a recipe a step after which an output is gone, or has another name, fails too.
Where a recipe does the right thing and `mobileprep transform` does what the original does, the
difference is in [Faithfulness](faithfulness.md). For a transform of your own, see
[Transforms of your own](own-transforms.md).

A picture shows a part of a small graph before and after a transform: red nodes are gone after it,
green ones are new, yellow ones differ.
"""


def render(schemas: TransformSchemas, pictures: Container[str] = ()) -> str:
    """The whole page, in Markdown."""
    lines = [_INTRODUCTION]
    read = {name: schemas.get(name) or {} for name in schemas.names}
    for heading, original in (("## Of the Graph Transform Tool", True), ("## Beyond it", False)):
        lines += [heading, ""]
        for name, schema in read.items():
            if schema.get("graphTransformTool", False) is original:
                lines += [*_section(name, schema, has_picture=name in pictures), ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(name: str, schema: Schema, *, has_picture: bool) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    yield str(schema.get("description", ""))
    if has_picture:
        yield ""
        yield f"![{name}: before and after](images/transforms/{name}.svg)"
    parameters = {k: v for k, v in schema["properties"].items() if k != "ignore_errors"}
    if not parameters:
        return
    yield ""
    yield "| parameter | value | default | |"
    yield "|---|---|---|---|"
    for key, described in parameters.items():
        default = _plain(described.get("default"))
        yield f"| `{key}` | {_type(described)} | {default} | {described.get('description', '')} |"


def _type(described: Schema) -> str:
    if described.get("type") == "array":
        return f"{_type(described['items'])}, repeated"
    if described.get("format") in _FORMATS:
        return _FORMATS[described["format"]]
    kind = described.get("type", "string")
    return _TYPES[kind] if isinstance(kind, str) else " or ".join(_TYPES[k] for k in kind)


def _plain(value: object) -> str:
    if value is None or value in ("", []):
        return ""
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"
