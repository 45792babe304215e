// Status propagation. Fallible calls return absl::Status or absl::StatusOr (style rule 4); errors of libraries
// below (SQLite, LLVM, XGBoost, ...) are converted once, where they are called.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TEMPER_RETURN_IF_ERROR(expr)                                                       \
  do {                                                                                     \
    if (absl::Status temper_status_ = (expr); !temper_status_.ok()) return temper_status_; \
  } while (false)

#define TEMPER_CONCAT_INNER(a, b) a##b
#define TEMPER_CONCAT(a, b) TEMPER_CONCAT_INNER(a, b)

// TEMPER_ASSIGN_OR_RETURN(auto x, Compute());
#define TEMPER_ASSIGN_OR_RETURN(lhs, expr) TEMPER_ASSIGN_OR_RETURN_IMPL(TEMPER_CONCAT(temper_or_, __LINE__), lhs, expr)
#define TEMPER_ASSIGN_OR_RETURN_IMPL(result, lhs, expr) \
  auto result = (expr);                                 \
  if (!result.ok()) return std::move(result).status();  \
  lhs = *std::move(result)
