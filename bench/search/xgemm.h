// What a config of CLBlast's Xgemm, as Kernel Tuner's spaces have it, does to a GPU: its knobs in the terms of our
// footprints, so that the draft can be tried on spaces that others measured whole.
#pragma once

#include "bench/search/measured_space.h"

namespace temper {

// Of a space of Xgemm on a device of known_gpus.h, by what the file calls it or by the file's name. A problem whose
// size the file does not tell is 4096 x 4096 x 4096. kInvalidArgument: another kernel, or a knob is missing. kNotFound:
// nothing is known of the device.
absl::StatusOr<MeasuredFootprint> XgemmFootprints(const MeasuredSpace& space);

}  // namespace temper
