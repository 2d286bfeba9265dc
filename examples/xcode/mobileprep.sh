#!/bin/sh
# A Run Script phase for Xcode that builds a target of a recipe and copies its files into the app.
#
#   Script         sh "$SRCROOT/mobileprep.sh" phone
#   Input Files    $(SRCROOT)/recipes/digits/recipe.yaml
#   Output Files   $(TARGET_BUILD_DIR)/$(UNLOCALIZED_RESOURCES_FOLDER_PATH)/digits.pb
#   Use discovered dependency file    $(DERIVED_FILE_DIR)/phone.d
#
# The dependency file makes Xcode run the phase again when an input of the recipe changes. With
# ENABLE_USER_SCRIPT_SANDBOXING, list all inputs in an input file list, one per line. Set the build
# setting MOBILEPREP to the path of mobileprep, because Xcode's PATH differs from the terminal's.
# The recipe must have the name of its directory.
set -eu
target=$1

# The names of list variables end in a number, which eval inserts.
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
