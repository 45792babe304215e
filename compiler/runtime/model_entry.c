/* The package's own way in: the plan that was linked beside this object. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/runtime/model.h"
#include "compiler/runtime/plan.h"

int temper_model_create(const char* package_dir, int threads, temper_model** model) {
  static const char kFile[] = "/weights.bin";
  if (!model || !package_dir) {
    if (model) *model = NULL;
    return temper_model_set_create_error(TEMPER_INVALID_ARGUMENT,
                                         "the package's directory, or the place for the model, is null");
  }
  char* path = malloc(strlen(package_dir) + sizeof kFile);
  if (!path) return temper_model_set_create_error(TEMPER_NO_RESOURCES, "no memory");
  sprintf(path, "%s%s", package_dir, kFile);
  const int code = temper_model_create_from_plan(&temper_package_plan, path, threads, model);
  free(path);
  return code;
}
