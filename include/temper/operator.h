// The operator API: what it takes to write an operator and its templates outside of Temper's tree. C++20. Link
// Temper::operators. examples/custom_operator.cc shows all of it.
//
//   OpDef           an operator: type rule, tensor expressions, reference, work; RegisterOp makes it known
//   CpuTemplate     a way to schedule it on CPUs: config space, build, footprint; RegisterTemplate(ForCpu(...))
//   ProgramBuilder  makes the loop nests of a tensor program
//   Schedule        rewrites them; Lower makes a kernel's function of the result
//   TryOperator     builds configs, runs them and compares them with the reference
//
// Register before any other use. Registration is not thread-safe. Functions return absl::Status or absl::StatusOr and
// throw nothing. The API has no stable binary interface: compile against the headers of the very library you link.
#ifndef TEMPER_OPERATOR_H_
#define TEMPER_OPERATOR_H_

#include "compiler/ir/te.h"
#include "compiler/ops/op.h"
#include "compiler/ops/template.h"
#include "compiler/ops/templates/cpu_template.h"
#include "compiler/package/try_operator.h"
#include "compiler/schedule/lower.h"
#include "compiler/schedule/schedule.h"

#endif  // TEMPER_OPERATOR_H_
