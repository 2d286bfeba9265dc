"""Short forms of protobuf text for graphs with functions."""

from __future__ import annotations

from mobileprep.graph.graph import Graph
from tests.freezing.graphs import parsed

T = 'attr { key: "T" value { type: DT_FLOAT } }'
X = 'attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "shape" value { shape { } } }'


def call(name: str, function: str, *inputs: str, results: int = 1, op: str = "PartitionedCall"):
    arguments = " ".join(f'input: "{i}"' for i in inputs)
    count = len([i for i in inputs if not i.startswith("^")])
    tin, tout = ("type: DT_FLOAT " * n for n in (count, results))
    return f"""node {{ name: "{name}" op: "{op}" {arguments}
        attr {{ key: "f" value {{ func {{ name: "{function}" }} }} }}
        attr {{ key: "Tin" value {{ list {{ {tin} }} }} }}
        attr {{ key: "Tout" value {{ list {{ {tout} }} }} }} }}"""


def function(name: str, args: str, body: str, **rets: str) -> str:
    arguments = " ".join(f'input_arg {{ name: "{a}" type: DT_FLOAT }}' for a in args.split())
    outputs = " ".join(f'output_arg {{ name: "{r}" type: DT_FLOAT }}' for r in rets)
    returns = " ".join(f'ret {{ key: "{k}" value: "{v}" }}' for k, v in rets.items())
    return (
        f"""function {{ signature {{ name: "{name}" {arguments} {outputs} }} {body} {returns} }}"""
    )


def model(nodes: str, *functions: str) -> Graph:
    return parsed(f"{nodes} library {{ {' '.join(functions)} }}")


PLACEHOLDER = f'node {{ name: "x" op: "Placeholder" {X} }}'
RELU = f'node {{ name: "y" op: "Relu" input: "call" {T} }}'


def body(*lines: str) -> str:
    """Nodes written as ``name op input...``."""
    nodes = []
    for line in lines:
        name, op, *inputs = line.split()
        arguments = " ".join(f'input: "{i}"' for i in inputs)
        nodes.append(f'node_def {{ name: "{name}" op: "{op}" {arguments} {T} }}')
    return " ".join(nodes)


def colocated(node: str, other: str) -> str:
    """A node's text with a colocation constraint."""
    entry = f'attr {{ key: "_class" value {{ list {{ s: "loc:@{other}" }} }} }}'
    return f"{node.rstrip().removesuffix('}')} {entry} }}"
