"""The stable codes of errors, warnings, and messages of apps: pattern, cause, and fix of each."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from msgspec import Struct

GENERAL_WARNING: Final = "MP000"
INTERNAL: Final = "MP970"
FIRST_OF_APPS: Final = "MP101"


class ErrorCode(Struct, frozen=True):
    """One entry of the error reference.

    Args:
        code: ``MP`` and three digits. The first digit is the exit code, 0 for warnings, and 1 for
            messages that an app prints when it loads or runs a model.
        title: a short name of the error.
        pattern: a regular expression that is searched in messages; empty for the general code of
            an exit code. The groups ``op``, ``node``, ``attr``, and ``version`` match names.
        cause: why the error occurs.
        fix: what to do.
        recipe: the change to a recipe as YAML; empty if no recipe is involved.
    """

    code: str
    title: str
    pattern: str
    cause: str
    fix: str
    recipe: str = ""


_NODE: Final = r"(?:.*(?:\{\{node |\[\[Node: )(?P<node>[\w.][\w./-]*))?"
"""The node of an error status, as TensorFlow prints it after the message."""

_APPS: Final = (
    ErrorCode(
        "MP101",
        "Kernel not registered",
        r"No OpKernel was registered to support Op '(?P<op>\w+)'(?s:" + _NODE + ")",
        "The TensorFlow library in the app has no kernel of the op for the data types or the "
        "device of the node.",
        "Build the library with the `ops_to_register.h` and the build files of this model. If the "
        "op belongs to training, cut it off. `mobileprep check-target` lists all such nodes.",
        "transforms:\n- strip_unused_nodes\ntargets:\n  phone: {registration: {}}",
    ),
    ErrorCode(
        "MP102",
        "Attribute unknown to the runtime",
        r"NodeDef mentions attr(?:ibute)? '?(?P<attr>\w+)'? (?:which is )?not in "
        r"(?:the op definition: )?Op<name=(?P<op>\w+)"
        r"(?s:.*?NodeDef: (?:\{\{node )?(?P<node>[\w.][\w./-]*))?",
        "The graph was saved by a newer TensorFlow, whose op has another attribute. The "
        "runtime of the app does not know the attribute.",
        "Add `downgrade` as the last transform. It removes attributes that have their default "
        "value.",
        "transforms:\n- strip_unused_nodes\n- downgrade",
    ),
    ErrorCode(
        "MP103",
        "Op unknown to the runtime",
        r"Op type not registered '(?P<op>[\w>]+)'",
        "The op is newer than the runtime of the app, or it is a custom op that the app does not "
        "link.",
        "Replace newer ops with `downgrade`. Link the library of a custom op into the app.",
        "transforms:\n- strip_unused_nodes\n- downgrade",
    ),
    ErrorCode(
        "MP104",
        "Session factory missing",
        r"No session factory registered",
        "The linker dropped the registration code of TensorFlow, because no code refers to it.",
        "Link the static library with `-force_load` (iOS) or `--whole-archive` (Android, Linux). "
        "The generated `app.xcconfig` and `app.mk` contain these flags.",
    ),
    ErrorCode(
        "MP105",
        "LiteRT operator missing",
        r"Didn't find op for builtin opcode '(?P<op>\w+)' version '?(?P<version>\d+)",
        "The LiteRT library in the app does not have the operator in this version: it is older "
        "than the file needs, or the app registers only selected operators.",
        "Name the oldest LiteRT release that the app links, and build again. If the app uses a "
        "custom resolver, register the operators of `litert_ops.txt`.",
        'targets:\n  phone: {artifact: tflite, litert: {min_runtime: "2.14"}}',
    ),
    ErrorCode(
        "MP106",
        "Flex delegate missing",
        r"(?:Regular TensorFlow ops are not supported by this interpreter"
        r"|Select TensorFlow op\(s\), included in the given model, is\(are\) not supported"
        r"|Node number \d+ (?=\(Flex)|unresolved custom op: (?=Flex))(?s:.*?\bFlex(?P<op>\w+))?",
        "The file contains TensorFlow ops, and the app does not link the Flex delegate.",
        "Link the Flex delegate, or build without `flex` to see which ops need it.",
        "targets:\n  phone: {artifact: tflite, flex: false}",
    ),
    ErrorCode(
        "MP107",
        "Custom LiteRT operator missing",
        r"Encountered unresolved custom op: (?P<op>\w+)|Encountered an unresolved custom op",
        "The file contains a custom operator, and the app does not register it.",
        "Register the operator in the app's resolver before the interpreter is created.",
    ),
    ErrorCode(
        "MP108",
        "Input not fed",
        r"You must feed a value for placeholder tensor '(?P<node>[^']+)'",
        "The graph needs a placeholder, and the app does not feed it.",
        "Feed it, or replace it by a constant in the recipe. `keep_prob` of a dropout is 1 for "
        "inference; `remove_dropout` removes the dropout.",
        "transforms:\n- remove_dropout\n- strip_unused_nodes",
    ),
    ErrorCode(
        "MP109",
        "Uninitialized variable",
        r"Attempting to use uninitialized value (?P<node>[\w./-]+)"
        r"|Error while reading resource variable [\w./-]+ from Container"
        r"|Could not find variable [\w./-]+\. This could mean",
        "The graph still contains variables, and the app restores no checkpoint.",
        "Freeze the graph: name its checkpoint in the recipe.",
        "source: {graph: graph.pbtxt, checkpoint: model.ckpt}",
    ),
    ErrorCode(
        "MP110",
        "Graph version not supported",
        r"GraphDef (?:producer|min consumer) version (?P<version>\d+) (?:below|above) ",
        "The graph's version is outside of the range that the runtime accepts.",
        "Add `downgrade` as the last transform; it also sets the versions of the graph.",
        "transforms:\n- strip_unused_nodes\n- downgrade",
    ),
    ErrorCode(
        "MP111",
        "Shape not accepted by the runtime",
        r"Cannot reshape a tensor with|Input to reshape is a tensor with"
        r"|num_input_elements != num_output_elements|Cannot set tensor: "
        r"|Cannot copy (?:to|from) a TensorFlowLite tensor",
        "The app feeds a tensor of another shape or dtype than the graph has.",
        "Compare the input with the list of `mobileprep summarize`. The generated code feeds "
        "the right shape.",
    ),
    ErrorCode(
        "MP112",
        "Model could not be parsed",
        r"Can't parse .* as binary proto|Model provided has model identifier"
        r"|The model is not a valid Flatbuffer",
        "The file is damaged, was compressed by the build of the app, or has another format than "
        "the runtime reads.",
        "Compare its digest with the manifest by `mobileprep verify`. Exclude it from compression "
        "(`noCompress` in Gradle).",
    ),
)

_WARNINGS: Final = (
    ErrorCode(
        GENERAL_WARNING,
        "Warning",
        "",
        "The work was done, and something needs your attention.",
        "Read the message; it names the fix if there is one.",
    ),
    ErrorCode(
        "MP001",
        "Batch normalization not folded",
        r"left that can be folded|no step of the chain folds"
        r"|before the batch norms are folded",
        "The graph still normalizes at run time. Folding moves the factors into the weights, which "
        "makes the model faster and its quantization more accurate.",
        "Add the transforms before the step that quantizes.",
        "transforms:\n- fold_batch_norms\n- fold_old_batch_norms",
    ),
    ErrorCode(
        "MP002",
        "Transform without effect",
        r"quantize_weights a second time|remove_nodes\(op=Identity\) on a graph",
        "A step of the chain repeats another one, or cannot do what its parameters say.",
        "Remove the step, or use the transform that the message names.",
    ),
    ErrorCode(
        "MP003",
        "Values measured at run time",
        r"no range is known of |no sample reached |quantized nodes? computes? in float32",
        "A tensor has no calibrated range, so the model measures it at each run or computes it in "
        "float.",
        "Calibrate with samples that reach all branches of the graph.",
        "calibration: {data: calibration.npz}",
    ),
    ErrorCode(
        "MP004",
        "Constant not folded",
        r"constant, and left to each run",
        "A constant result would take too much memory or time to compute in the build.",
        "Make the computation smaller where the model is exported.",
    ),
    ErrorCode(
        "MP010",
        "Unsuitable samples",
        r"look at the scale of the samples|samples are distinct|the ranges are those of "
        r"|look like noise|EXIF orientation|are NaN throughout"
        r"|the graph does not scale that|samples cannot be read: ",
        "The samples have another range than the graph expects, are too few, or cannot be read.",
        "Use samples like those of the app, with the scaling of the training.",
        "calibration:\n  data: {pictures: photos/, mean: 127.5, std: 127.5}",
    ),
    ErrorCode(
        "MP011",
        "Weak check",
        r"outputs hardly move|outputs have no elements|nothing but NaN or infinity"
        r"|the check runs the model|was not checked against the source",
        "The samples do not show whether the transforms keep the model's results.",
        "Name samples of your own.",
        "check: {data: samples.npz}",
    ),
    ErrorCode(
        "MP012",
        "Doubtful accuracy",
        r"near chance: |samples which the ranges were|without labels, the model is compared",
        "The labels, the scaling, or the choice of the samples make the accuracy unreliable.",
        "Check the order of the classes and the scaling, and validate on samples that calibration "
        "does not use.",
    ),
    ErrorCode(
        "MP013",
        "Large difference",
        r"would refuse it$|differs from the source's (?:in|by) |have another top-1 class",
        "The prepared model differs from the source more than usual.",
        "Compare accuracies with `validation`, or use a gentler quantization.",
        "validation: {data: test.npz, metric: top1, max_drop: 0.01}",
    ),
    ErrorCode(
        "MP020",
        "Op not in the runtime",
        r"TensorFlow \S+ has |more that TensorFlow \S+ lacks"
        r"|the app has to register |the app has to link ",
        "The runtime of the app does not have an op, a kernel, or an attribute of the model.",
        "Register the op in the app, choose another release, or add `downgrade`.",
        "targets:\n  phone: {registration: {tensorflow: '1.15'}}",
    ),
    ErrorCode(
        "MP021",
        "Model not run",
        r"the model was not run",
        "mobileprep has no kernel for an op of the model, so it cannot run it.",
        "Validate the model in the app.",
    ),
    ErrorCode(
        "MP022",
        "Constants not mapped",
        r"may write its result (?:to the memory|into their memory)|constants of quantized dtypes",
        "Memory-mapped constants cannot be written, and an op of the graph may try.",
        "Run `fold_constants` first.",
        "transforms:\n- fold_constants: {ignore_errors: true}",
    ),
    ErrorCode(
        "MP023",
        "Unused or misplaced input",
        r"does not use the input |the inputs cut off |know where the app stores it"
        r"|is not in the graph",
        "The inputs of the recipe do not match what the model needs.",
        "Name the tensors that the app feeds under `inputs`.",
    ),
    ErrorCode(
        "MP030",
        "Lock file out of date",
        r"does not fit: |is not pinned|is pinned, and not used| is pinned$",
        "An input, a package, or the recipe differs from the lock file.",
        "Run `mobileprep lock` if the change is intended.",
    ),
    ErrorCode(
        "MP031",
        "Remote cache unusable",
        r"remote store",
        "The remote cache cannot be reached, is slow, or refuses access. The build goes on without "
        "it.",
        "Check the URL and the token, or turn the cache off with "
        "`MOBILEPREP_REMOTE_CACHE_MODE=off`.",
    ),
)

_MESSAGES: Final = (
    ErrorCode(
        "MP200",
        "Invalid command line",
        "",
        "The command line cannot be parsed, or its options exclude each other.",
        "See `mobileprep help VERB`.",
    ),
    ErrorCode(
        "MP201",
        "Unknown verb",
        r"^unknown verb ",
        "The first argument is not a verb of mobileprep.",
        "Use the suggested verb. `mobileprep help` lists all verbs.",
    ),
    ErrorCode(
        "MP202",
        "Missing argument",
        r"the following arguments are required",
        "The verb needs more arguments.",
        "See `mobileprep help VERB` for its arguments.",
    ),
    ErrorCode(
        "MP203",
        "Unknown option",
        r"^unrecognized arguments: ",
        "The verb does not have this option.",
        "Use the suggested option.",
    ),
    ErrorCode(
        "MP300",
        "Invalid recipe",
        "",
        "A recipe has a value that is not allowed, or two keys exclude each other.",
        "The message names the line and column; see the recipe reference.",
    ),
    ErrorCode(
        "MP301",
        "Unknown key",
        r"unknown key ",
        "A key of the recipe is misspelled, or belongs in another section.",
        "Use the suggested key. Editors can check recipes by their schema.",
    ),
    ErrorCode(
        "MP302",
        "Missing key",
        r"the key .* is missing|write at least",
        "The recipe lacks a required key.",
        "Add the key that the message names.",
    ),
    ErrorCode(
        "MP303",
        "Not YAML",
        r"not YAML|a tab in the indentation|is not UTF-8",
        "The recipe is not valid YAML.",
        "Check quotes, colons, and indentation before the reported location.",
    ),
    ErrorCode(
        "MP304",
        "Wrong type or value",
        r": expected ",
        "A value of the recipe has the wrong type, or is not one of the allowed values.",
        "Write a value of the type that the message names. Quote strings such as `no` or `1.10`.",
    ),
    ErrorCode(
        "MP305",
        "Unknown transform",
        r"unknown transform ",
        "The chain names a transform that does not exist.",
        "Use the suggested name, or name the file of a custom transform under `plugins`.",
    ),
    ErrorCode(
        "MP306",
        "Unknown transform parameter",
        r" has no parameter ",
        "The transform does not have this parameter.",
        "Use the suggested parameter; see the transforms reference.",
    ),
    ErrorCode(
        "MP307",
        "File not found",
        r"no such (?:file|checkpoint|folder)|is a directory, not a file",
        "A recipe names a file that does not exist. Paths are relative to the recipe.",
        "Correct the path, or create the file first.",
    ),
    ErrorCode(
        "MP308",
        "Variable without a value",
        r"the variable \w+ has no value",
        "The recipe refers to an environment variable that is not set.",
        "Set it, or give a default: `${NAME:-default}`.",
    ),
    ErrorCode(
        "MP309",
        "Key set twice",
        r"is already set|is given twice|a second time",
        "The same key or step occurs twice.",
        "Keep one of them.",
    ),
    ErrorCode(
        "MP400",
        "Unreadable file",
        "",
        "A file is missing, damaged, or not of the expected format.",
        "Check the path and get the file again.",
    ),
    ErrorCode(
        "MP401",
        "Git LFS pointer",
        r"is a Git LFS pointer",
        "The checkout contains a pointer instead of the file.",
        "Run `git lfs pull`. In CI, enable LFS in the checkout step.",
    ),
    ErrorCode(
        "MP402",
        "File cannot be read",
        r"^(?:cannot be read: |does not exist)|does not exist$",
        "The file does not exist, or you do not have the permission to read it.",
        "Correct the path or the permissions.",
    ),
    ErrorCode(
        "MP403",
        "Unknown file format",
        r"cannot detect the format|is neither a graph|is not a(?:n)? (?:\.|[A-Z]|array|readable)",
        "The content of the file is not of a supported or of the expected format.",
        "Name another file; the formats reference lists the supported formats.",
    ),
    ErrorCode(
        "MP404",
        "Truncated file",
        r"ends (?:after|within)|is truncated|its header declares|the file ends at",
        "The file is shorter than it declares, for example after an interrupted download.",
        "Copy or download the file again.",
    ),
    ErrorCode(
        "MP405",
        "Damaged file",
        r"checksum|is damaged|damaged headers",
        "The content does not match its checksum.",
        "Copy or export the file again.",
    ),
    ErrorCode(
        "MP406",
        "Encrypted model",
        r"is an encrypted model|was changed after it was encrypted",
        "The file is a protected model, or it was changed after it was encrypted.",
        "Name the model before encryption; `mobileprep build` writes it again.",
    ),
    ErrorCode(
        "MP407",
        "Incomplete checkpoint",
        r"of the checkpoint is missing|whose index is missing|several checkpoints"
        r"|no checkpoint with this name",
        "Files of the checkpoint are missing, or the name matches none or several.",
        "Name the prefix of one checkpoint, and keep its `.index` and `.data` files together.",
    ),
    ErrorCode(
        "MP408",
        "File too large",
        r"which is too much|at most .* are read|is longer than|unpacks to more than",
        "The file is larger than mobileprep reads, which protects against hostile files.",
        "Reduce the file.",
    ),
    ErrorCode(
        "MP409",
        "File changed during the build",
        r"changed during the build",
        "Another program wrote the file while the build read it.",
        "Run the build again.",
    ),
    ErrorCode(
        "MP410",
        "Input differs from the lock file",
        r"has the sha256",
        "A pinned input has another content than the lock file records.",
        "Restore the input. If the change is intended, run `mobileprep lock` and review the diff.",
    ),
    ErrorCode(
        "MP500",
        "Invalid graph",
        "",
        "A node or the graph breaks a rule of its op.",
        "Export the model again; `mobileprep summarize` shows its contents.",
    ),
    ErrorCode(
        "MP501",
        "Name not in the graph",
        r"is not in the graph",
        "An input, an output, or a node that you named does not exist in the graph.",
        "Use the suggestion, or `mobileprep summarize` to list likely inputs and outputs.",
    ),
    ErrorCode(
        "MP502",
        "Variables without values",
        r"variables have no value|holds the variables",
        "The graph contains variables, and no checkpoint provides their values.",
        "Name the checkpoint that was saved with this graph.",
        "source: {graph: graph.pbtxt, checkpoint: model.ckpt}",
    ),
    ErrorCode(
        "MP503",
        "Input of a node is missing",
        r"takes .*which does not exist|inputs of nodes are missing",
        "A node refers to another node that the graph does not contain.",
        "Export the graph again, or remove the node with `strip_unused_nodes`.",
    ),
    ErrorCode(
        "MP504",
        "Cycle",
        r"in a circle|depends on its own output",
        "Nodes of the graph depend on each other in a cycle.",
        "Export the graph again.",
    ),
    ErrorCode(
        "MP505",
        "Placeholder is not an input",
        r"needs the placeholder",
        "An output depends on a placeholder that the recipe does not list.",
        "Add it to `inputs`, or remove it, for example with `remove_dropout`.",
    ),
    ErrorCode(
        "MP506",
        "Shape mismatch",
        r"has the shape|does not fit|cannot have the shape",
        "A shape differs from the one that the graph or the data has.",
        "Correct the shape in `inputs` or in the data.",
    ),
    ErrorCode(
        "MP507",
        "Limit of a run exceeded",
        r"of the memory limit|remain of the limit for a run|goes on after .* iterations",
        "A node needs more memory, arithmetic, or loop iterations than a run may use.",
        "If you trust the model, raise the limits with `--memory`, `--max_flops`, or "
        "`--max_iterations`.",
    ),
    ErrorCode(
        "MP600",
        "Not supported",
        "",
        "An op, a dtype, or a format is not supported.",
        "See the ops reference, or `mobileprep check-target`.",
    ),
    ErrorCode(
        "MP601",
        "Package not installed",
        r"not installed|needs? the package",
        "An optional package is missing.",
        "Install the extra that `help:` names, such as `pip install 'mobileprep[all]'`.",
    ),
    ErrorCode(
        "MP602",
        "Op without kernel",
        r"which cannot be run here|no kernel for",
        "The interpreter of mobileprep does not have the op.",
        "See the ops reference; use `engine: tensorflow`, or add a custom op.",
    ),
    ErrorCode(
        "MP603",
        "Not possible in LiteRT",
        r"LiteRT has no|LiteRT cannot|the code for LiteRT|\.tflite file",
        "LiteRT has no operator for a node, or not for its dtype.",
        "Cut the node off, or convert with `--flex`.",
    ),
    ErrorCode(
        "MP604",
        "Unknown TensorFlow release",
        r"no (?:kernel table|op definitions|table of the kernel files) of TensorFlow",
        "mobileprep has no tables of this TensorFlow release.",
        "Use a release that the message lists.",
    ),
    ErrorCode(
        "MP605",
        "Not in the app's TensorFlow",
        r"does not know the attribute|does not have the op|compiles no kernel|does not link",
        "The TensorFlow release or build of the target lacks an op, an attribute, or a kernel.",
        "Add `downgrade` to the end of `transforms`, or change `registration`.",
        "transforms:\n- strip_unused_nodes\n- downgrade",
    ),
    ErrorCode(
        "MP700",
        "Transform failed",
        "",
        "A transform cannot do its work on this graph.",
        "Remove the step, or change its options; see the transforms reference.",
    ),
    ErrorCode(
        "MP800",
        "Accuracy or data",
        "",
        "A calibration, check, or validation failed, or its data does not match the model.",
        "Compare the data with the inputs of the model, and check the limits of the recipe.",
    ),
    ErrorCode(
        "MP801",
        "Stale range file",
        r"the range file is stale|not up to date",
        "The graph or the data changed after the range file was written.",
        "Run `mobileprep calibrate` and check in the new file.",
    ),
    ErrorCode(
        "MP802",
        "Accuracy limit missed",
        r"at most .* is allowed|at least .* is required",
        "Quantization or a transform changes results more than the recipe allows.",
        "Keep sensitive layers in float, use better calibration data, or change the limit.",
    ),
    ErrorCode(
        "MP803",
        "Budget missed",
        r"over the budget|the budget of",
        "The model is larger or slower than the recipe allows.",
        "Quantize it, or raise the budget.",
    ),
    ErrorCode(
        "MP804",
        "NaN or infinity",
        r"\bNaN\b|infinite",
        "Values are NaN or infinite.",
        "Check the preprocessing and the data; `check: true` finds the step.",
    ),
    ErrorCode(
        "MP805",
        "Labels missing or wrong",
        r"\blabels?\b|\bclass(?:es)?\b",
        "Labels are missing, or do not match the classes of the model.",
        "Correct `labels` of the validation.",
    ),
    ErrorCode(
        "MP806",
        "Gap between data sets",
        r"the gap of \S+ exceeds the limit|'max_gap' of ",
        "The metric of the model differs too much between two data sets of the validation.",
        "Train or calibrate with samples like those of both data sets, or raise `max_gap`.",
    ),
    ErrorCode(
        "MP900",
        "Output not writable",
        "",
        "An output cannot be written.",
        "Check the free space and the permissions, or name another directory.",
    ),
    ErrorCode(
        "MP901",
        "Output exists",
        r"exists already|^exists and ",
        "The command does not overwrite this file.",
        "Name another file, or remove this one.",
    ),
    ErrorCode(
        "MP902",
        "Directory in use",
        r"being worked on|being used by a build",
        "Another build uses the directory.",
        "Wait until it ends; without `--no-wait`, a build waits for it.",
    ),
    ErrorCode(
        "MP903",
        "Overlapping outputs",
        r"where the build reads|which the build reads|one inside the other",
        "An output would overwrite an input.",
        "Name another output directory.",
    ),
    ErrorCode(
        "MP904",
        "Model over 2 GiB",
        r"2 GiB|too large to be encrypted",
        "The format cannot hold models of this size.",
        "Quantize the model, or split it.",
    ),
    ErrorCode(
        "MP905",
        "Memory or threads exhausted",
        r"the machine (?:gives no more memory|starts no more threads)",
        "The machine or the container has no more memory or threads.",
        "Raise its limits, or run fewer stages at once with `-j`.",
    ),
    ErrorCode(
        INTERNAL,
        "Bug in mobileprep",
        "",
        "A rule of mobileprep's own code is broken.",
        "Please report it with the traceback.",
    ),
)

CODES: Final = tuple(sorted((*_APPS, *_WARNINGS, *_MESSAGES), key=lambda entry: entry.code))


def code_of(message: str, exit_code: int) -> str:
    """The code of an error, or of a warning for the exit code 0; a general code without a match."""
    if exit_code == int(INTERNAL[3:]):
        return INTERNAL
    digit = str(exit_code)
    general = f"MP{digit}00"
    listed = (e for e in CODES if e.code[2] == digit and e.pattern and e.code != INTERNAL)
    return next((e.code for e in listed if _search(e.pattern, message)), general)


def with_code(message: str, exit_code: int) -> str:
    """Append the code of an error, or of a warning for the exit code 0, to its first line."""
    first, end, more = message.partition("\n")
    return f"{first} [{code_of(message, exit_code)}]{end}{more}"


def find_app_message(text: str) -> tuple[ErrorCode, dict[str, str]] | None:
    """The entry of a log line of an app, and the names that the line contains; None if unknown."""
    for entry in _APPS:
        match = _search(entry.pattern, text)
        if match is not None:
            return entry, {k: v for k, v in match.groupdict().items() if v is not None}
    return None


def _search(pattern: str, text: str) -> re.Match[str] | None:
    return _compiled(pattern).search(text)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
