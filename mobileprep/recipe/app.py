"""The sections of a recipe on the app that ships the model, and checks that no schema makes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal, TypeAlias

from mobileprep.frozen import dataclass
from mobileprep.options.declare import Option
from mobileprep.recipe.problems import Problem
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.tree import MappingNode, Node, Place, Scalar, Sequence, SourceText, plain

Language: TypeAlias = Literal["java", "kotlin", "cpp", "objc", "swift"]

# Those of Java, Kotlin and C++ that a part of a package or namespace could be.
_KEYWORDS: Final = """
abstract alignas alignof and as asm assert auto bitand bitor bool boolean break byte case catch
char class compl const constexpr continue decltype default delete do double else enum explicit
export extends extern false final finally float for friend fun goto if implements import in
inline instanceof int interface is long mutable namespace native new noexcept not null nullptr
object operator or package private protected public register return short signed sizeof static
std strictfp struct super switch synchronized template tensorflow this throw throws transient
true try typealias typedef typeid typename typeof union unsigned using val var virtual void
volatile wchar_t when while xor
"""
# Types that the code refers to by their short names.
_TYPES: Final = """
AssetManager AutoCloseable Boolean BufferedReader Byte Charsets Closeable Double EncryptedModel
Exception Float Int Integer List Long Math Model ArrayList IOException IllegalArgumentException
InputStreamReader
Object Override StandardCharsets String TensorFlowInferenceInterface BooleanArray ByteArray
DoubleArray FloatArray IntArray LongArray
"""
_ENVIRONMENT: Final = "env:"
_NAMED_KEY: Final = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,199}\Z")
_OF_ANDROID: Final = ("java", "kotlin")


@dataclass(frozen=True)
class Integration:
    """The code by which an app runs the model."""

    languages: Annotated[
        tuple[Language, ...],
        Option(
            "The languages: `java` and `kotlin` for TensorFlowInferenceInterface, `cpp` for the "
            "Session API, `objc` for Objective-C++ that calls the C++. With `artifact: tflite` "
            "`java`, `kotlin`, `swift` and `cpp` for LiteRT's Interpreter. Required.",
            min_items=1,
            unique=True,
        ),
    ]
    package: Annotated[
        str, Option("The package of Java and Kotlin, the namespace of C++.", definition="package")
    ] = "mobileprep.model"
    class_name: Annotated[str, Option("The name of the class.", definition="class_name")] = (
        "PreparedModel"
    )
    threads: Annotated[
        int | None,
        Option(
            "Number of threads that compute an op: TensorFlow's intra-op threads in C++ and "
            "Objective-C++, where ops then run one at a time (one inter-op thread), and LiteRT's "
            "threads in all languages. Without it, the runtime decides, as "
            "TensorFlowInferenceInterface always does.",
            minimum=1,
            maximum=256,
        ),
    ] = None


@dataclass(frozen=True)
class Protection:
    """What makes a model harder to take out of an app.

    Args:
        key: the variable of the environment that has the key to encrypt with, or None.
    """

    obfuscate: Annotated[
        bool, Option("Replace the names of nodes by short ones, as the target's `obfuscate` does.")
    ] = False
    key: str | None = None


def protection_of(section: MappingNode | None) -> Protection:
    """What a section without problems asks for."""
    if section is None:
        return Protection()
    encrypt = section.get("encrypt")
    named = plain(encrypt)["key"] if isinstance(encrypt, MappingNode) else None
    obfuscate = section.get("obfuscate")
    return Protection(
        obfuscate is not None and plain(obfuscate) is True,
        None if named is None else named.removeprefix(_ENVIRONMENT),
    )


def protection_problems(target: TargetSections) -> Iterator[Problem]:
    """A key that is written where it should be named, and models that cannot be encrypted."""
    protect = target.mapping("protect")
    encrypt = None if protect is None else protect.get("encrypt")
    if not isinstance(encrypt, MappingNode):
        return
    key, artifact = encrypt.get("key"), target.get("artifact")
    if isinstance(key, Scalar) and not (isinstance(key.value, str) and _NAMED_KEY.match(key.value)):
        message = "a key is named, never written: a recipe is no place for it"
        hint = "write 'key: env:NAME', where NAME is the variable that has it"
        yield Problem(_hidden(key.place), message, hint)
    if artifact is not None and plain(artifact) == "memmapped":
        message = "an encrypted model cannot be mapped into memory"
        yield Problem(encrypt.place, message, "leave 'encrypt' out, or ship 'artifact: frozen'")


def _hidden(place: Place) -> Place:
    """A place whose line messages show without what stands there."""
    written = place.source
    lines = list(written.lines)
    lines[place.line - 1] = f"{lines[place.line - 1][: place.column - 1]}***"
    return place._replace(source=SourceText(written.name, written.folder, "\n".join(lines)))


def integration_of(section: MappingNode | None) -> Integration | None:
    """What a section without problems asks for."""
    if section is None:
        return None
    given: dict[str, Any] = plain(section)
    given["languages"] = tuple(given["languages"])
    if given.get("threads") is not None:
        given["threads"] = int(given["threads"])
    return Integration(**given)


def integration_problems(target: TargetSections) -> Iterator[Problem]:
    """Names that no language takes, and models that an interface cannot load."""
    section = target.mapping("integration")
    if section is None:
        return
    if "languages" not in section.entries:
        place = target.tree.entries["integration"].key_place
        yield Problem(place, "the key 'languages' is missing", "add 'languages: [java]'")
    package, name = section.get("package"), section.get("class_name")
    if isinstance(package, Scalar) and isinstance(package.value, str):
        for word in sorted(set(_KEYWORDS.split()) & set(package.value.split("."))):
            yield Problem(package.place, f"{word!r} cannot be a part of a package", "rename it")
    if isinstance(name, Scalar) and name.value in _TYPES.split():
        message = f"the code has another class of the name {name.value!r}"
        yield Problem(name.place, message, "choose another name")
    languages, artifact = section.get("languages"), target.get("artifact")
    form = None if artifact is None else plain(artifact)
    yield from _runtime_problems(languages, is_lite=form == "tflite")
    if form not in ("text", "memmapped") or not isinstance(languages, Sequence):
        return
    for item in languages.items:
        if plain(item) in _OF_ANDROID:
            message = "TensorFlowInferenceInterface loads no model with "
            message += f"'artifact: {form}', as {plain(item)!r} would"
            yield Problem(item.place, message, "leave it out, or ship 'artifact: frozen'")


def _runtime_problems(languages: Node | None, *, is_lite: bool) -> Iterator[Problem]:
    """Languages in which the runtime that loads the model has no interface here."""
    missing, hint = ("objc", "write 'swift' or 'cpp'") if is_lite else ("swift", "write 'objc'")
    runtime = "LiteRT" if is_lite else "TensorFlow"
    for item in languages.items if isinstance(languages, Sequence) else ():
        if plain(item) == missing:
            yield Problem(item.place, f"no code for {runtime} is here in {missing!r}", hint)
