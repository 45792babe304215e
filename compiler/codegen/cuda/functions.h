// Device functions of ours that generated CUDA C++ calls by name, as inline PTX. They are for NVRTC alone: who compiles
// the text for a host has bodies of their own (tests/codegen/cuda_on_host.h), and threads that meet where a warp does
// something together.
//
//   temper_row_at(const void* shared)                          a temper_row: where a row lies, plus so many bytes
//   temper_load_matrix(uint* to, temper_row row)               ldmatrix.x4: of ir/launch.h's matrices
//   temper_load_matrix_transposed(uint* to, temper_row row)
//   temper_load_matrix_f32(float* to, temper_row row)
//   float temper_load_f32(temper_row row)                      a lane's own element there
//   temper_multiply_f16(float* c, const uint* a, const uint* b)   two mma.m16n8k16: c of eight, a and b of four
//   temper_multiply_bf16(float* c, const uint* a, const uint* b)
//   temper_multiply_tf32(float* c, const float* a, const float* b)   two mma.m16n8k8: of a and b what TF32 holds
//   float temper_round_to_tf32(float x)                           to the nearest, ties away from zero; no instruction
//   uint temper_tile_at(const void* shared)                       where a tile lies, in rows of 16 bytes
//   ulong temper_descriptor<next_step, next_outer>(uint tile)     of the TiledMatrix (compiler/ir/stmt.h) that begins
//                                                              there, with its distances in bytes; no instruction
//   temper_begin_products<sums>(float* c)                         wgmma.fence; c of so many
//   temper_add_product_f16_64<turned_a, turned_b>(float* c, ulong a, ulong b)   wgmma.m64n64k16, by descriptors; of any
//   temper_add_product_bf16_64<turned_a, turned_b>(...)           multiple of 16 columns up to 256; c of half as many
//   temper_end_products<sums>(float* c)                           until c is made
//   temper_team_barrier()                                         of all threads of a group, and between what they
//                                                              stored in shared memory and what products read there
//   T temper_exchange(T mine, int lanes)                          shfl.bfly: what the lane l ^ lanes has
//   temper_copy<bytes>(void* shared, const void* global, bool inside)   cp.async of 4, 8 or 16, zeros where not inside;
//                                                              2 at once
//   temper_commit_copies()
//   temper_wait_copies<most>()                                 until at most so many groups are on their way
#pragma once

#include <string>
#include <string_view>

namespace temper {

// The text of the function of that name; empty: there is none.
std::string CudaFunction(std::string_view name);

}  // namespace temper
