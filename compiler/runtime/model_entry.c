/* The package's own way in: the plan that was linked beside this object. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/runtime/plan.h"
#include "include/temper/model.h"

/* Of the temper_device that this runtime calls. Whoever sets temper_model_device_<generator> looks at it before. */
TEMPER_API const int32_t temper_model_device_version = TEMPER_DEVICE_VERSION;

/* The file that this code was loaded from; NULL: nobody knows. */
static const char* own_file(void) {
  Dl_info info;
  return dladdr(&temper_package_plan, &info) ? info.dli_fname : NULL;
}

int temper_model_create(const char* package_dir, int threads, temper_model** model) {
  static const char kFile[] = "/weights.bin";
  if (!model) return temper_model_set_create_error(TEMPER_INVALID_ARGUMENT, "the place for the model is null");
  *model = NULL;
  const char* folder = package_dir ? package_dir : own_file();
  if (!folder)
    return temper_model_set_create_error(TEMPER_NO_PACKAGE, "nobody knows where the library is: give the directory");
  size_t length = strlen(folder);
  if (!package_dir) {
    const char* slash = strrchr(folder, '/');
    length = slash ? (size_t)(slash - folder) : 1;
    if (!slash) folder = ".";
  }
  char* path = malloc(length + sizeof kFile);
  if (!path) return temper_model_set_create_error(TEMPER_NO_RESOURCES, "no memory");
  memcpy(path, folder, length);
  memcpy(path + length, kFile, sizeof kFile);
  const int code = temper_model_create_from_plan(&temper_package_plan, path, threads, model);
  free(path);
  return code;
}
