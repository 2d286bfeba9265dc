"""Stores large float constants as eight-bit numbers, which are turned into floats at run time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.rewrite import unique_name
from mobileprep.ir.tensor import Tensor
from mobileprep.quant.min_first import STEPS, to_quint8
from mobileprep.transforms._constants import float_constant, value_range
from mobileprep.transforms._variances import variances
from mobileprep.transforms.base import Context, Result, Transform, transform
