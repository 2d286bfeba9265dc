"""The rule mobileprep_model, which builds a target of a recipe."""

# To use mobileprep's cache, which is outside of the sandbox, name it with
# --action_env=MOBILEPREP_CACHE and --sandbox_writable_path. Bazel skips unchanged targets
# itself.
_COMMAND = """
set -eu
recipe=$1 target=$2 copied=$3
shift 3
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
export HOME="${HOME:-$built}" MOBILEPREP_CACHE="${MOBILEPREP_CACHE:-$built/store}"
mobileprep build "$recipe" --target "$target" --out "$built/out" >&2
for file in "$@"; do
  cp "$built"/out/*/"$target/$file" "$copied/$file"
done
"""

def _mobileprep_model_impl(ctx):
    files = ctx.outputs.outs
    parts = [ctx.bin_dir.path, ctx.label.workspace_root, ctx.label.package]
    package = "/".join([part for part in parts if part])
    names = [file.path[len(package) + 1:] for file in files]
    ctx.actions.run_shell(
        outputs = files,
        inputs = [ctx.file.recipe] + ctx.files.srcs,
        command = _COMMAND,
        arguments = [ctx.file.recipe.path, ctx.attr.target, package] + names,
        mnemonic = "Mobileprep",
        progress_message = "Preparing the model of %s" % ctx.label,
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset(files), runfiles = ctx.runfiles(files))]

mobileprep_model = rule(
    implementation = _mobileprep_model_impl,
    doc = "Builds a target of a recipe; mobileprep is taken from the PATH.",
    attrs = {
        "outs": attr.output_list(
            mandatory = True,
            doc = "Files of the target's folder, such as digits.pb and ops_to_register.h.",
        ),
        "recipe": attr.label(
            allow_single_file = [".yaml"],
            mandatory = True,
            doc = "The recipe.",
        ),
        "srcs": attr.label_list(
            allow_files = True,
            doc = "All other files that it reads; the sandbox has no others.",
        ),
        "target": attr.string(
            mandatory = True,
            doc = "The name of one of its targets.",
        ),
    },
)
