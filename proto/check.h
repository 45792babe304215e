// Whether a message keeps the limits of proto/limits.h: asked of everything that comes over the wire, before it is
// looked at. Thread-safe.
#pragma once

#include <google/protobuf/message.h>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace temper {

// kInvalidArgument: the first field that breaks its limit, by name, and the limit. Nothing of its text is repeated.
// Fields that this build does not know are passed over: they are part of the message's size, which the caller limits.
absl::Status CheckMessage(const google::protobuf::Message& message);

// The same of what a server says, which is not believed either: RefusedAnswer.
absl::Status CheckAnswer(const google::protobuf::Message& message);
absl::Status RefusedAnswer(absl::string_view why);  // kDataLoss

}  // namespace temper
