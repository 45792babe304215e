// What every store refuses and what may be called best: the part of the contract that all implementations share.
#pragma once

#include "base/status.h"
#include "storage/record.h"

namespace temper {

inline constexpr size_t kMaxErrorBytes = 1024;
inline constexpr size_t kProvisionalSamples = 3;  // of a search; fewer say too little to serve a config by

absl::Status CheckRecord(const Record& r);  // kInvalidArgument: see Store::Append
absl::Status CheckJob(const JobRow& job);   // kInvalidArgument: an unknown state or verdict
bool MayBeBest(const Record& r);            // by outcome, purpose and number of samples
bool IsConfirmed(const Record& r);          // measured beside its rivals: a final or a revalidation
// A failure of the candidate's own: what was measured of it before, in the same place, may be best no longer.
bool Refutes(const Record& r);
// `later` is a revalidation that says more than `r` does: of the same workload, target, device key and threads, and of
// another code generator or the very same config.
bool Retires(const Record& later, const Record& r);
std::string_view KeptError(const Record& r);  // at most kMaxErrorBytes, cut between UTF-8 characters

}  // namespace temper
