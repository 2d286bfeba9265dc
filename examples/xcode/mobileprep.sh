#!/bin/sh
# A Run Script phase of Xcode: builds a target of a recipe, and copies files of it into the app.
#
#   Script         sh "$SRCROOT/mobileprep.sh" phone
#   Input Files    $(SRCROOT)/recipes/digits/recipe.yaml
#   Output Files   $(TARGET_BUILD_DIR)/$(UNLOCALIZED_RESOURCES_FOLDER_PATH)/digits.pb
#   Use discovered dependency file    $(DERIVED_FILE_DIR)/phone.d
#
# By the dependency file Xcode runs the phase again when anything that the recipe reads has changed.
# With ENABLE_USER_SCRIPT_SANDBOXING all of that has to be among the inputs, in an input file list
# (one in each line). The build setting MOBILEPREP is the path of mobileprep: Xcode's own PATH is not
# that of a terminal. The recipe's name must be that of its folder.
set -eu
target=$1

# Names of the variables of lists have numbers; eval puts the number in, and nothing else.
value() { eval "printf '%s' \"\${$1_$2}\""; }

if [ "${SCRIPT_INPUT_FILE_COUNT:-0}" -lt 1 ] || [ "${SCRIPT_OUTPUT_FILE_COUNT:-0}" -lt 1 ]; then
  echo "error: the phase needs the recipe as its first input file, and output files" >&2
  exit 1
fi
recipe=$(value SCRIPT_INPUT_FILE 0)
built=$DERIVED_FILE_DIR/models
folder=$built/$(basename "$(dirname "$recipe")")/$target
"${MOBILEPREP:-mobileprep}" build "$recipe" --target "$target" --out "$built" \
  --depfile "$DERIVED_FILE_DIR/$target.d"

number=0
while [ "$number" -lt "$SCRIPT_OUTPUT_FILE_COUNT" ]; do
  output=$(value SCRIPT_OUTPUT_FILE "$number")
  mkdir -p "$(dirname "$output")"
  cp "$folder/$(basename "$output")" "$output"
  number=$((number + 1))
done
