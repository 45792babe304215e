// Stands before protobuf's header in a build under ThreadSanitizer. That header would give maps two more fields there,
// which Debian's library, built without it, knows nothing of.
#pragma once
#pragma push_macro("__SANITIZE_THREAD__")
#undef __SANITIZE_THREAD__
#include_next <google/protobuf/map_field.h>
#pragma pop_macro("__SANITIZE_THREAD__")
