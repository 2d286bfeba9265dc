# mobileprep_add_model(NAME RECIPE FOLDER TARGET TARGET FILE MODEL)
#
# Adds the target NAME, which builds a target of the recipe in FOLDER when an input changes. MODEL is
# the name of the model file. Code and build files are in the same directory, which is the property
# MOBILEPREP_FOLDER of the target.
function(mobileprep_add_model name)
  cmake_parse_arguments(PARSE_ARGV 1 model "" "RECIPE;TARGET;FILE" "")
  foreach(key RECIPE TARGET FILE)
    if(NOT model_${key})
      message(FATAL_ERROR "mobileprep_add_model(${name}) needs ${key}")
    endif()
  endforeach()
  get_filename_component(recipe ${model_RECIPE} ABSOLUTE)
  get_filename_component(recipe_name ${recipe} NAME)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/models)
  set(folder ${out}/${recipe_name}/${model_TARGET})
  set(depfile ${CMAKE_CURRENT_BINARY_DIR}/${name}.d)
  add_custom_command(
    OUTPUT ${folder}/manifest.json
    BYPRODUCTS ${folder}/${model_FILE}
    COMMAND mobileprep build ${recipe} --target ${model_TARGET} --out ${out} --depfile ${depfile}
    DEPENDS ${recipe}/recipe.yaml
    DEPFILE ${depfile}
    VERBATIM)
  add_custom_target(${name} ALL DEPENDS ${folder}/manifest.json)
  set_target_properties(${name} PROPERTIES MOBILEPREP_FOLDER ${folder})
endfunction()
