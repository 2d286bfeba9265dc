"""Files for the build of an app, which link TensorFlow 1.15 and package the model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from mobileprep.targets.targets import Abi, Platform, platform_named

# The newest published version.
_ANDROID_LIBRARY: Final = "org.tensorflow:tensorflow-android:1.13.1"
# The newest version, which is also older than 1.15.
_POD: Final = "TensorFlow-experimental"
_OPENSSL: Final = "OpenSSL-Universal"
# Relative to the directory of the makefile build.
_INCLUDES: Final = (
    *("downloads", "downloads/eigen", "downloads/absl", "downloads/nsync/public"),
    *("downloads/protobuf/src", "gen/proto", "gen/proto_text"),
)
_CORE: Final = "libtensorflow-core.a"
_GNU_STL: Final = "$(NDK_ROOT)/sources/cxx-stl/gnu-libstdc++/4.9/libs/$(ANDROID_ARCH)"


class _Linking(NamedTuple):
    """Link settings of make: the makefile's library, nsync, directories, and libraries."""

    library: str
    nsync: str
    folders: tuple[str, ...]
    libraries: str


_LINKED: Final = MappingProxyType(
    {
        "android": _Linking(
            "lib/android_$(ANDROID_ARCH)",
            "$(ANDROID_ARCH).android.c++11",
            ("$(TENSORFLOW_MAKEFILE)/gen/protobuf_android/$(ANDROID_ARCH)/lib", _GNU_STL),
            "-lgnustl_static -lprotobuf -llog -lz -lm -ldl -latomic",
        ),
        "raspberry-pi": _Linking(
            "lib",
            "default.linux.c++11",
            ("/usr/local/lib",),
            "-lstdc++ -lprotobuf -lz -lm -ldl -lpthread",
        ),
        "linux": _Linking(
            "lib",
            "default.linux.c++11",
            ("$(TENSORFLOW_MAKEFILE)/gen/protobuf-host/lib",),
            "-lstdc++ -lprotobuf -lz -lm -ldl -lpthread -lrt",
        ),
    }
)
"""Platforms on which make links apps."""


def app_files(
    platform: str,
    abis: Collection[str],
    name: str,
    model: str,
    *,
    encrypted: bool = False,
    custom_ops: Iterable[str] = (),
) -> dict[str, str]:
    """Return the files for building an app with a model: names and contents.

    - ``app.gradle`` for Android: adds the model to the assets, selects ABIs, and links TensorFlow.
    - ``app.mk`` for Android, Raspberry Pi, and Linux: include paths and link flags.
    - ``app.xcconfig`` for iOS: include paths and link flags for Xcode.
    - ``NAME.podspec`` for iOS: the model, and the code that runs it, as a pod.
    """
    own = ", ".join(sorted(custom_ops))
    requested = platform_named(platform).abis_named(abis)
    if platform == "ios":
        return {
            "app.xcconfig": _xcconfig(requested),
            f"{name}.podspec": _podspec(name, model, encrypted, own),
        }
    files = {"app.mk": _make(platform, requested, encrypted)} if platform in _LINKED else {}
    if platform == "android":
        files["app.gradle"] = _gradle(requested, name, model, own)
    return files


def _make(platform: str, abis: Sequence[Abi], encrypted: bool) -> str:
    linking = _LINKED[platform]
    architecture = [f"ANDROID_ARCH ?= {abis[0].make}"] if platform == "android" else []
    link = [
        "-Wl,--allow-multiple-definition",
        "-Wl,--whole-archive $(TENSORFLOW_LIBRARY) -Wl,--no-whole-archive",
        "$(TENSORFLOW_NSYNC)",
        *(f"-L{folder}" for folder in linking.folders),
        f"-lcrypto {linking.libraries}" if encrypted else linking.libraries,
        *platform_named(platform).link_flags,
    ]
    library = f"$(TENSORFLOW_MAKEFILE)/gen/{linking.library}/{_CORE}"
    nsync = f"$(TENSORFLOW_MAKEFILE)/downloads/nsync/builds/{linking.nsync}/nsync.a"
    return text_of(
        [
            "# Flags to compile and link a C++ app with TensorFlow 1.15, built by",
            "# selective_registration.mk. Set TENSORFLOW to its directory, and include this file:",
            "#   CXXFLAGS += $(TENSORFLOW_CXXFLAGS)",
            "#   app: app.o ; $(CXX) -o $@ $^ $(TENSORFLOW_LDFLAGS)",
            "TENSORFLOW ?= tensorflow",
            *architecture,
            f"TENSORFLOW_MAKEFILE = $(TENSORFLOW)/{MAKEFILE}",
            f"TENSORFLOW_LIBRARY = {library}",
            "# The path that compile_nsync.sh prints.",
            f"TENSORFLOW_NSYNC ?= {nsync}",
            "TENSORFLOW_CXXFLAGS = -std=c++14 -I$(TENSORFLOW) \\",
            *_continued(f"-I$(TENSORFLOW_MAKEFILE)/{folder}" for folder in _INCLUDES),
            "# Ops and kernels register themselves in constructors that no code refers to.",
            "TENSORFLOW_LDFLAGS = \\",
            *_continued(link),
        ]
    )


def _gradle(abis: Sequence[Abi], name: str, model: str, own: str) -> str:
    pages = " ".join(platform_named("android").link_flags)
    published = f"dependencies.add('implementation', '{_ANDROID_LIBRARY}')"
    if own:
        lacks = f"{_ANDROID_LIBRARY} does not have {own}: set ext.tensorflowLibraries"
        published = f"throw new GradleException('{lacks}')"
    return f"""\
// Adds {model} and the code that runs it to an Android app. In its build.gradle, after the
// plugin com.android.application:
//   apply from: 'PATH/app.gradle'
// By default, the app uses the published TensorFlow library, with all kernels of a mobile build. To
// use your own build (selective_registration.mk or .bazelrc), name its directory before that line.
// The directory contains ABI/*.so, and TensorFlow's classes in a .jar:
//   ext.tensorflowLibraries = file('libs')
{copied_model(name, model, abis)}
// For the app's own native code: devices with Android 15 and newer may have 16 KB pages.
// CMake uses the last value of a variable, so the app's own flags are repeated here.
def cmake = android.defaultConfig.externalNativeBuild.cmake
def variable = '-DCMAKE_SHARED_LINKER_FLAGS='
def given = cmake.arguments.findAll {{ it.startsWith(variable) }}.collect {{ it - variable }}
cmake.arguments variable + (given + '{pages}').join(' ')
{packed_model(model)}
if (project.hasProperty('tensorflowLibraries')) {{
    android.sourceSets.main.jniLibs.srcDir tensorflowLibraries
    dependencies.add('implementation', fileTree(dir: tensorflowLibraries, include: '*.jar'))
}} else {{
    {published}
}}
"""


def _xcconfig(abis: Sequence[Abi]) -> str:
    sdks = {"arm64": "iphoneos", "x86_64": "iphonesimulator"}
    includes = " ".join(f'"$(TENSORFLOW_MAKEFILE)/{folder}"' for folder in _INCLUDES)
    libraries = (
        f'-force_load "$(TENSORFLOW_MAKEFILE)/gen/lib/ios_$(TENSORFLOW_ARCH)/{_CORE}" '
        '"$(TENSORFLOW_MAKEFILE)/gen/protobuf_ios/lib/libprotobuf.a" '
        '"$(TENSORFLOW_MAKEFILE)/downloads/nsync/builds/lipo.ios.c++11/nsync.a" '
        "-framework Accelerate -framework CoreFoundation -lz"
    )
    return text_of(
        [
            "// Builds an app with TensorFlow 1.15, built by selective_registration.mk. In the",
            "// app's own .xcconfig, followed by TENSORFLOW if its directory differs:",
            '//   #include "PATH/app.xcconfig"',
            "TENSORFLOW = $(SRCROOT)/tensorflow",
            f"TENSORFLOW_MAKEFILE = $(TENSORFLOW)/{MAKEFILE}",
            *(f"ARCHS[sdk={sdks[abi.name]}*] = {abi.name}" for abi in abis),
            *(f"TENSORFLOW_ARCH[sdk={sdks[abi.name]}*] = {abi.make}" for abi in abis),
            f'HEADER_SEARCH_PATHS = $(inherited) "$(TENSORFLOW)" {includes}',
            "// Ops and kernels register themselves in constructors that no code refers to.",
            "// -all_load would load both protobuf libraries, which define the same symbols.",
            f"OTHER_LDFLAGS = $(inherited) {libraries}",
            "CLANG_CXX_LANGUAGE_STANDARD = gnu++14",
            "CLANG_CXX_LIBRARY = libc++",
            "ENABLE_BITCODE = NO",
        ]
    )


def _podspec(name: str, model: str, encrypted: bool, own: str) -> str:
    lacks = f"raise 'The pod {_POD} does not have {own}: set TENSORFLOW'"
    published = lacks if own else f"pod.dependency '{_POD}'"
    openssl = f"\n  pod.dependency '{_OPENSSL}'" if encrypted else ""
    return f"""\
# A pod with {model} and the code that runs it. In the app's Podfile:
#   pod '{name}', :path => 'PATH'
# By default, the pod uses the published TensorFlow pod. With app.xcconfig and TENSORFLOW in the
# environment, it uses the build of selective_registration.mk in that directory.
Pod::Spec.new do |pod|
  pod.name = '{name}'
  pod.version = '1.0.0'
  pod.summary = 'The model {model}, and the code that runs it'
  pod.source = {{ :path => '.' }}
  pod.platform = :ios, '9.0'
  pod.static_framework = true
  pod.resources = '{{{model},{name}_labels.txt,assets}}'
  pod.source_files = 'integration/{{cpp,objc}}/*.{{h,cc,mm}}'
  pod.requires_arc = true
  pod.libraries = 'c++', 'z'
  pod.frameworks = 'Accelerate'{openssl}
  if ENV['TENSORFLOW']
    folders = %w[{" ".join(_INCLUDES)}].map {{ |folder| "/{MAKEFILE}/#{{folder}}" }}
    paths = ['', *folders].map {{ |folder| "\\"#{{ENV['TENSORFLOW']}}#{{folder}}\\"" }}
    pod.pod_target_xcconfig = {{ 'HEADER_SEARCH_PATHS' => paths.join(' ') }}
  else
    {published}
  end
end
"""


def _continued(parts: Iterable[str]) -> list[str]:
    """Join lines of a makefile with line continuations."""
    lines = [f"  {part}" for part in parts]
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


MAKEFILE: Final = "tensorflow/contrib/makefile"
"""Directory of the makefile build in the sources of TensorFlow 1.15."""


def makefile_fragment(
    platform: Platform,
    abis: Sequence[Abi],
    compiler_flags: Sequence[str],
    before: Sequence[str],
    after: Sequence[str],
) -> str:
    """Return a makefile to include before TensorFlow's own: target, architecture, and flags."""
    return text_of(
        [
            f"# TensorFlow 1.15 for {platform.name} with only the kernels of the model.",
            *before,
            f"# Copy tf_op_files.txt to {MAKEFILE}/, then build in TensorFlow's directory:",
            *(f"#   {command}" for command in dict.fromkeys(_commands(platform, abis))),
            *([f"override TARGET := {platform.make_target}"] if platform.make_target else []),
            *_architecture(platform, abis),
            "# The optimization level is yours: make ... OPTFLAGS=-Os",
            "OPTFLAGS ?= -O2",
            f"override OPTFLAGS += {' '.join([*compiler_flags, *_own_flags(platform)])}",
            *([f"%.so: LDFLAGS += {' '.join(platform.link_flags)}"] * bool(platform.link_flags)),
            "ANDROID_TYPES := -D__ANDROID_TYPES_FULL__",
            *after,
        ]
    )


def text_of(lines: Iterable[str]) -> str:
    """Return the contents of a file with these lines."""
    return "\n".join(lines) + "\n"


def _commands(platform: Platform, abis: Sequence[Abi]) -> Iterator[str]:
    """Yield the build commands, including duplicates for several ABIs."""
    nsync = f"{MAKEFILE}/compile_nsync.sh"
    yield f"{MAKEFILE}/download_dependencies.sh"
    yield f"export HOST_NSYNC_LIB=$({nsync})"
    for name, make_name in [(abi.name, abi.make) for abi in abis] or [("", "")]:
        if platform.protobuf:
            yield f"{MAKEFILE}/{platform.protobuf.format(name)}"
        elif platform.make_target:
            made_from = "./autogen.sh && ./configure && make && sudo make install"
            yield f"(cd {MAKEFILE}/downloads/protobuf && {made_from})"
        yield f"export TARGET_NSYNC_LIB=$({nsync}{platform.nsync.format(name)})"
        # On the device itself. When cross-compiling, the makefile detects the host.
        words = ["HOST_OS=PI"] if platform.make_target == "PI" else []
        words += [f"{platform.make_variable}={make_name}"] if make_name else []
        words += [word.format(MAKEFILE) for word in platform.make_words]
        command = ("make", "-f PATH/selective_registration.mk", f"-f {MAKEFILE}/Makefile", *words)
        yield " ".join(command)


def _architecture(platform: Platform, abis: Sequence[Abi]) -> Iterator[str]:
    """Yield the default architecture if the command line does not set one."""
    if not abis:
        return
    variable = platform.make_variable
    # The makefile itself sets the architecture for iOS, so an override is required.
    yield f"ifneq ($(origin {variable}),command line)"
    yield f"override {variable} := {abis[0].make}"
    yield "endif"
    yield from (f"{variable}_FLAGS_{abi.make} := {abi.flags}" for abi in abis if abi.flags)


def _own_flags(platform: Platform) -> list[str]:
    """Return the flags of the selected ABI, if any ABI has flags."""
    variable = platform.make_variable
    return [f"$({variable}_FLAGS_$({variable}))"] if any(abi.flags for abi in platform.abis) else []


def copied_model(name: str, model: str, abis: Sequence[Abi]) -> str:
    """Return Gradle code that copies a model to the app's assets, and selects ABIs."""
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
    """Return Gradle code that packages the output of ``copied_model``, model uncompressed."""
    extension = model.rpartition(".")[2]
    return f"""\
// A compressed file cannot be mapped into memory.
android."$packing".noCompress '{extension}'
android.sourceSets.main.assets.srcDir assets
// If a class exists in both languages, the Java class is used.
(classes[0].disjoint(classes[1]) ? code : code.take(1)).findAll {{ it.directory }}.each {{
    android.sourceSets.main.java.srcDir it
}}"""
