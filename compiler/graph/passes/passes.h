// The graph passes; pipeline.cc has their order.
#pragma once

#include "compiler/graph/graph.h"
#include "compiler/target/target.h"

namespace temper::passes {

// On a CPU: values of f16 and bf16 become values of f32, with casts behind the graph's inputs and before its outputs.
absl::Status WidenFloats(Graph& g, const Target& t);
// Products of integers, and of what was quantised to 8 bits: by integers where the target has a template for it, else
// by f32, integers where that is exact.
absl::Status MultiplyIntegers(Graph& g, const Target& t);
// Nodes whose operands all are known become constants.
absl::Status FoldConstants(Graph& g);
// Equal calls on equal operands are computed once; equal small constants become one.
absl::Status EliminateCommonSubexpressions(Graph& g);
absl::Status RemoveDeadCode(Graph& g);
// Algebra: batch-norm and other affine chains into weights and one bias, layer norm and silu written out, moves that
// cancel.
absl::Status Simplify(Graph& g);
// On a GPU: products of one matrix with several constants become one product of a batch.
absl::Status MergeContractions(Graph& g, const Target& t);
// On a CPU: where a convolution has so few output channels that vectors of them would be mostly empty, neighbours along
// a row become channels of one with a wider filter.
absl::Status NeighboursAsChannels(Graph& g, const Target& t);
// Physical orders: channels last around convolutions, transposes and reshapes that move no bytes.
absl::Status ChooseLayouts(Graph& g);
// Nodes into kernels, as far as the target has templates for them.
absl::Status Fuse(Graph& g, const Target& t);
// Where two kernels could be one, or one two, in a way that only measurement can judge: both ways.
absl::Status ProposeAlternatives(Graph& g, const Target& t);
void GroupEachNode(Graph& g);

}  // namespace temper::passes
