"""Files for the build of an app, read by their tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.recipe.settings import ABIS
from mobileprep.targets.app_files import app_files
from mobileprep.targets.targets import PLATFORMS, platform_named

PAGES = "-Wl,-z,max-page-size=16384"


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_files_of_each_platform() -> None:
    files = {name: set(app_files(name, (), "digits", "digits.pb")) for name in PLATFORMS}
    assert files == {
        "android": {"app.gradle", "app.mk"},
        "ios": {"app.xcconfig", "digits.podspec"},
        "raspberry-pi": {"app.mk"},
        "linux": {"app.mk"},
        "generic": set(),
    }


def test_unknown_binary_interface_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="linux has no binary interface 'x86'"):
        app_files("linux", ("x86",), "digits", "digits.pb")


SOURCES = {
    "kernel.cc": 'extern "C" int puts(const char*);\n'
    'int shared() { return 1; }\nstruct R { R() { puts("registered"); } } registered;\n',
    "twice.cc": "int shared() { return 2; }\n",
    "nsync.cc": "int nsync() { return 3; }\n",
    "app.cc": '#include "eigen.h"\n#include "op.pb.h"\nint nsync();\n'
    "int main() { return nsync() - EIGEN - OP; }\n",
    "Makefile": "include app.mk\nCXXFLAGS += $(TENSORFLOW_CXXFLAGS)\n"
    "app: app.o ; $(CXX) -o $@ $^ -Llibs $(TENSORFLOW_LDFLAGS)\n",
}


@pytest.mark.parametrize("platform", ["raspberry-pi", "linux"])
def test_make_links_all_registrations(tmp_path: Path, platform: str) -> None:
    """Link libraries that have an unreferenced object and a duplicate function."""
    (tmp_path / "app.mk").write_text(app_files(platform, (), "digits", "digits.pb")["app.mk"])
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    makefile = tmp_path / "tensorflow/tensorflow/contrib/makefile"
    for folder in ("downloads/eigen", "downloads/nsync/builds/default.linux.c++11", "gen/proto"):
        (makefile / folder).mkdir(parents=True)
    (makefile / "gen/lib").mkdir()
    (makefile / "downloads/eigen/eigen.h").write_text("#define EIGEN 1\n")
    (makefile / "gen/proto/op.pb.h").write_text("#define OP 2\n")
    (tmp_path / "libs").mkdir()
    run("g++", "-c", "kernel.cc", "twice.cc", "nsync.cc", cwd=tmp_path)
    run("ar", "-r", makefile / "gen/lib/libtensorflow-core.a", "kernel.o", "twice.o", cwd=tmp_path)
    nsync = makefile / "downloads/nsync/builds/default.linux.c++11/nsync.a"
    run("ar", "-r", nsync, "nsync.o", cwd=tmp_path)
    for library in ("protobuf", "z"):
        run("ar", "-r", tmp_path / f"libs/lib{library}.a", "nsync.o", cwd=tmp_path)
    run("make", "app", cwd=tmp_path)
    assert run(tmp_path / "app", cwd=tmp_path).split() == ["registered"]


def test_make_links_libraries_of_the_binary_interface(tmp_path: Path) -> None:
    text = app_files("android", ("x86", "x86_64"), "digits", "digits.pb")["app.mk"]
    (tmp_path / "app.mk").write_text(text)
    (tmp_path / "Makefile").write_text("include app.mk\nall: ; @echo $(TENSORFLOW_LDFLAGS)\n")
    output = run("make", "-s", "NDK_ROOT=ndk", cwd=tmp_path)
    assert PAGES in output and "/gen/lib/android_x86/libtensorflow-core.a" in output
    output = run("make", "-s", "NDK_ROOT=ndk", "ANDROID_ARCH=x86_64", cwd=tmp_path)
    assert "/gen/protobuf_android/x86_64/lib" in output and "libs/x86_64 " in output
    assert "x86 " not in output and "$(" not in output


GRADLE = """\
// A stub of the Android plugin that records calls.
class Recorder {
    String path
    def called = []
    def children = [:]
    def calls
    def propertyMissing(String name) {
        if (!children.containsKey(name)) {
            children[name] = new Recorder(path: path ? "$path.$name" : name, calls: calls)
        }
        children[name]
    }
    def methodMissing(String name, args) { calls << "$path.$name ${args.toList()}" }
}
def calls = []
ext.android = new Recorder(path: '', calls: calls)
android.defaultConfig.externalNativeBuild.cmake.children.arguments = []
ANDROID
configurations { implementation }
task preBuild { doLast {
    calls.each { println "call $it" }
    configurations.implementation.dependencies.each { println "needs ${it.group}:${it.version}" }
} }
apply from: 'models/app.gradle'
"""


def gradle(folder: Path, *lines: str, abis: tuple[str, ...] = (), **model: str) -> str:
    """Run the build of an app and return its output."""
    (folder / "models").mkdir(exist_ok=True)
    name, file = model.get("name", "digits"), model.get("file", "digits.pb")
    (folder / "models/app.gradle").write_text(app_files("android", abis, name, file)["app.gradle"])
    (folder / "models" / file).write_text("a model")
    (folder / "models/report.json").write_text("{}")
    (folder / "models/assets/more").mkdir(parents=True, exist_ok=True)
    (folder / "models/assets/more/words.txt").write_text("yes\n")
    (folder / "build.gradle").write_text(GRADLE.replace("ANDROID", "\n".join(lines)))
    (folder / "settings.gradle").write_text("rootProject.name = 'app'\n")
    home = ("-g", folder / "home", "--project-cache-dir", folder / "cache")
    return run("gradle", "--offline", "--no-daemon", "-q", *home, "preBuild", cwd=folder)


def test_gradle_adds_the_model_to_the_assets(tmp_path: Path) -> None:
    lines = gradle(tmp_path, abis=("arm64-v8a", "armeabi-v7a")).splitlines()
    assets = tmp_path / "build/mobileprep/digits"
    assert "call defaultConfig.ndk.abiFilters [arm64-v8a, armeabi-v7a]" in lines
    assert f"call sourceSets.main.assets.srcDir [{assets}]" in lines
    assert "needs org.tensorflow:1.13.1" in lines
    assert sum(PAGES in line for line in lines) == 1
    assert not any("java" in line or "jniLibs" in line for line in lines)
    copied = {str(p.relative_to(assets)) for p in assets.rglob("*") if p.is_file()}
    assert copied == {"digits.pb", "assets/more/words.txt"}


def test_gradle_keeps_existing_linker_flags(tmp_path: Path) -> None:
    own = "['-DANDROID_STL=c++_static', '-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--gc-sections']"
    arguments = "android.defaultConfig.externalNativeBuild.cmake.children.arguments"
    lines = gradle(tmp_path, f"{arguments} = {own}").splitlines()
    flags = f"-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--gc-sections {PAGES}"
    assert f"call defaultConfig.externalNativeBuild.cmake.arguments [{flags}]" in lines


@pytest.mark.parametrize(
    ("code", "languages"),
    [
        ("kotlin/App.kt", ["kotlin"]),
        ("kotlin/App.kt java/EncryptedModel.java", ["java", "kotlin"]),
        ("kotlin/App.kt java/App.java java/EncryptedModel.java", ["java"]),
    ],
)
def test_gradle_adds_existing_code_and_libraries(
    tmp_path: Path, code: str, languages: list[str]
) -> None:
    for file in code.split():
        path = tmp_path / "models/integration" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    output = gradle(
        tmp_path, "ext.tensorflowLibraries = file('libs')", name="v1.b-2", file="v1.b-2.pb.enc"
    )
    folders = [f"{tmp_path}/models/integration/{language}" for language in languages]
    assert re.findall(r"main\.java\.srcDir \[(.*)\]", output) == folders
    assert f"sourceSets.main.jniLibs.srcDir [{tmp_path}/libs]" in output
    assert "noCompress [enc]" in output
    assert "org.tensorflow" not in output
    assert (tmp_path / "build/mobileprep/v1.b-2/v1.b-2.pb.enc").is_file()


@pytest.mark.parametrize("encrypted", [False, True])
def test_openssl_is_linked_for_encrypted_models(encrypted: bool) -> None:
    for platform in ("ios", "android", "raspberry-pi", "linux"):
        files = app_files(platform, (), "digits", "digits.pb.enc", encrypted=encrypted)
        text = "".join(files[name] for name in files if name in ("app.mk", "digits.podspec"))
        assert ("-lcrypto " in text or "'OpenSSL-Universal'" in text) == encrypted


RUBY = """\
class Recorder
  def initialize(name, calls) = (@name, @calls = name, calls)
  def method_missing(name, *args) = @calls["#{@name}#{name}".chomp('=')] = args
  def respond_to_missing?(*) = true
end
module Pod
  module Spec
    def self.new
      calls = {}
      yield Recorder.new('', calls)
      calls.each { |key, args| puts "#{key} #{args.flatten.inspect}" }
    end
  end
end
load 'digits.podspec'
"""


@pytest.mark.parametrize("own", [False, True])
def test_ruby_reads_the_podspec(tmp_path: Path, own: bool) -> None:
    text = app_files("ios", (), "digits", "digits.pb")["digits.podspec"]
    (tmp_path / "digits.podspec").write_text(text)
    (tmp_path / "read.rb").write_text(RUBY)
    environ = {"PATH": "/usr/bin:/bin", **({"TENSORFLOW": "/a b/tensorflow"} if own else {})}
    output = run("ruby", "-w", "-I.", "read.rb", cwd=tmp_path, env=environ)
    assert 'name ["digits"]' in output
    assert 'resources ["{digits.pb,digits_labels.txt,assets}"]' in output
    assert ('dependency ["TensorFlow-experimental"]' in output) == (not own)
    folder = '"/a b/tensorflow/tensorflow/contrib/makefile/gen/proto'
    assert (folder in output.replace("\\", "")) == own


def settings(text: str) -> dict[str, str]:
    """The settings of an .xcconfig file: one on each line that is not a comment."""
    lines = [line for line in text.splitlines() if line and not line.startswith("//")]
    assert all(" = " in line and ";" not in line for line in lines)
    return {key: value for key, _, value in (line.partition(" = ") for line in lines)}


def test_xcconfig_loads_all_of_tensorflow_for_each_sdk() -> None:
    both = settings(app_files("ios", (), "digits", "digits.pb")["app.xcconfig"])
    assert both["ARCHS[sdk=iphoneos*]"] == "arm64"
    assert both["TENSORFLOW_ARCH[sdk=iphonesimulator*]"] == "X86_64"
    flags = both["OTHER_LDFLAGS"]
    library = "gen/lib/ios_$(TENSORFLOW_ARCH)/libtensorflow-core.a"
    assert f'-force_load "$(TENSORFLOW_MAKEFILE)/{library}"' in flags
    assert "-all_load" not in flags
    assert '"$(TENSORFLOW_MAKEFILE)/downloads/eigen"' in both["HEADER_SEARCH_PATHS"]
    named = {key for key in both if "[" not in key} | {"inherited", "SRCROOT", "TENSORFLOW_ARCH"}
    used = {part.partition(")")[0] for value in both.values() for part in value.split("$(")[1:]}
    assert used <= named
    device = settings(app_files("ios", ("arm64",), "digits", "digits.pb")["app.xcconfig"])
    assert not any("simulator" in key for key in device)


def test_platforms_and_abis_match_the_recipe_schema() -> None:
    text = resources.files("mobileprep").joinpath("schemas/recipe.json").read_text()
    target = json.loads(text)["$defs"]["target"]["properties"]
    assert list(PLATFORMS) == target["platform"]["enum"]
    of_platforms = {name: tuple(abi.name for abi in p.abis) for name, p in PLATFORMS.items()}
    assert {name: abis for name, abis in of_platforms.items() if abis} == ABIS
    assert set(target["abis"]["items"]["enum"]) == {abi for abis in ABIS.values() for abi in abis}


def test_unknown_platform_suggests_the_nearest() -> None:
    with pytest.raises(UnsupportedError, match="andriod") as caught:
        platform_named("andriod")
    assert caught.value.hint == "did you mean 'android'?"
