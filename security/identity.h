// What a client calls itself to an open server, which knows nobody.
#pragma once

#include <string>

namespace temper {

// The random identity that is kept in `directory`, made at its first use. Empty where it can not be kept: then the jobs
// of this client are nobody's.
std::string ClientIdentity(const std::string& directory);

}  // namespace temper
