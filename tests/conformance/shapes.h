// Three shapes for each template, or more: small ones, whose sizes fill no vector, tile or thread's share.
#pragma once

#include <string>
#include <string_view>

namespace temper::conformance {

struct Shape {
  std::string_view template_name, workload;
};

// What a test is about: a template, and of its shapes those that allow TF32, or the others.
struct Subject {
  std::string_view template_name;
  bool tf32 = false;
  bool Has(const Shape& shape) const {
    const bool allows = shape.workload.find("tf32=1") != shape.workload.npos;
    return shape.template_name == template_name && allows == tf32;
  }
  std::string name() const { return std::string(template_name) + (tf32 ? " tf32" : ""); }
};

inline constexpr Shape kShapes[] = {
    {"conv2d.direct",
     "(f32[1,24,7,5]@0231, const f32[37,24,1,1], f32[37,1,1]) conv2d(0,1) -> f32[1,37,7,5]@0231; "
     "add(3,2) -> f32[1,37,7,5]@0231; relu(4) -> f32[1,37,7,5]@0231; anchor=0"},
    {"conv2d.direct",
     "(f32[1,48,9,9]@0231, const f32[80,48,1,1]) conv2d(0,1; strides=[2,2]) -> f32[1,80,5,5]@0231; anchor=0"},
    {"conv2d.direct", "(f32[2,12,5,3]@0231, const f32[22,6,1,1]) conv2d(0,1; group=2) -> f32[2,22,5,3]@0231; anchor=0"},

    {"conv2d.rows",
     "(f32[1,8,9,9]@0231, const f32[19,8,3,3], f32[19,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f32[1,19,9,9]@0231; "
     "add(3,2) -> f32[1,19,9,9]@0231; relu(4) -> f32[1,19,9,9]@0231; anchor=0"},
    {"conv2d.rows",
     "(f32[1,3,11,13]@0231, const f32[33,3,5,5]) conv2d(0,1; pads=[2,2,2,2] strides=[2,2]) -> f32[1,33,6,7]@0231; "
     "anchor=0"},
    {"conv2d.rows",
     "(f32[2,10,8,7]@0231, const f32[14,5,3,3]) conv2d(0,1; dilations=[2,2] group=2 pads=[2,2,2,2]) -> "
     "f32[2,14,8,7]@0231; anchor=0"},
    {"conv2d.rows",
     "(f32[5,16,6,7]@0231, const f32[21,48,3,3]) unfold_planes(0; depth=5 pads=[1,1] stride=2 taps=3) -> "
     "f32[3,48,6,7]@0231; conv2d(2,1; pads=[1,1,1,1] strides=[2,2]) -> f32[3,21,3,4]@0231; anchor=1"},

    {"conv2d.winograd",
     "(f32[4,16,6,7]@0231, const f32[21,48,3,3]) unfold_planes(0; depth=2 pads=[1,1] taps=3) -> f32[4,48,6,7]@0231; "
     "conv2d(2,1; pads=[1,1,1,1]) -> f32[4,21,6,7]@0231; anchor=1"},
    {"conv2d.winograd",
     "(f32[1,8,9,9]@0231, const f32[19,8,3,3]) conv2d(0,1; pads=[1,1,1,1]) -> f32[1,19,9,9]@0231; anchor=0"},
    {"conv2d.winograd", "(f32[1,11,7,6]@0231, const f32[33,11,3,3]) conv2d(0,1) -> f32[1,33,5,4]@0231; anchor=0"},
    {"conv2d.winograd",
     "(f32[2,16,6,10]@0231, const f32[24,16,3,3], f32[24,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f32[2,24,6,10]@0231; "
     "add(3,2) -> f32[2,24,6,10]@0231; relu(4) -> f32[2,24,6,10]@0231; anchor=0"},

    {"conv2d.depthwise",
     "(f32[1,19,9,7]@0231, const f32[19,1,3,3]) conv2d(0,1; group=19 pads=[1,1,1,1]) -> f32[1,19,9,7]@0231; anchor=0"},
    {"conv2d.depthwise",
     "(f32[1,24,10,11]@0231, const f32[24,1,5,5]) conv2d(0,1; group=24 pads=[2,2,2,2] strides=[2,2]) -> "
     "f32[1,24,5,6]@0231; anchor=0"},
    {"conv2d.depthwise",
     "(f32[2,33,6,6]@0231, const f32[33,1,3,3], f32[33,1,1]) conv2d(0,1; dilations=[2,2] group=33 pads=[2,2,2,2]) -> "
     "f32[2,33,6,6]@0231; add(3,2) -> f32[2,33,6,6]@0231; anchor=0"},

    {"conv2d.separable",
     "(f32[1,19,9,7]@0231, const f32[19,1,3,3], const f32[26,19,1,1]) conv2d(0,1; group=19 pads=[1,1,1,1]) -> "
     "f32[1,19,9,7]@0231; conv2d(3,2) -> f32[1,26,9,7]@0231; anchor=1"},
    {"conv2d.separable",
     "(f32[1,16,10,10]@0231, const f32[16,1,3,3], const f32[37,16,1,1]) conv2d(0,1; group=16 pads=[1,1,1,1] "
     "strides=[2,2]) -> f32[1,16,5,5]@0231; conv2d(3,2) -> f32[1,37,5,5]@0231; anchor=1"},
    {"conv2d.separable",
     "(f32[1,21,7,6]@0231, const f32[21,1,5,5], const f32[18,21,1,1]) conv2d(0,1; group=21 pads=[2,2,2,2]) -> "
     "f32[1,21,7,6]@0231; relu(3) -> f32[1,21,7,6]@0231; conv2d(4,2) -> f32[1,18,7,6]@0231; anchor=2"},

    {"conv2d.expanded",
     "(f32[1,19,9,7]@0231, const f32[16,19,1,1], const f32[16,1,3,3]) conv2d(0,1) -> f32[1,16,9,7]@0231; "
     "conv2d(3,2; group=16 pads=[1,1,1,1]) -> f32[1,16,9,7]@0231; anchor=1"},
    {"conv2d.expanded",
     "(f32[2,11,10,10]@0231, const f32[48,11,1,1], const f32[48,1,3,3]) conv2d(0,1) -> f32[2,48,10,10]@0231; "
     "silu(3) -> f32[2,48,10,10]@0231; conv2d(4,2; group=48 pads=[1,1,1,1] strides=[2,2]) -> f32[2,48,5,5]@0231; "
     "anchor=2"},
    {"conv2d.expanded",
     "(f32[1,5,7,6]@0231, const f32[32,5,1,1], const f32[32,1,5,5]) conv2d(0,1) -> f32[1,32,7,6]@0231; "
     "sigmoid(3) -> f32[1,32,7,6]@0231; conv2d(4,2; group=32 pads=[2,2,2,2]) -> f32[1,32,7,6]@0231; anchor=2"},

    {"matmul.packed",
     "(f32[37,50], const f32[50,70], const f32[70]) matmul(0,1) -> f32[37,70]; add(3,2) -> f32[37,70]; anchor=0"},
    {"matmul.packed", "(f32[1,52], const f32[52,19]) matmul(0,1) -> f32[1,19]; anchor=0"},
    {"matmul.packed", "(f32[2,9,17], f32[2,23,17]) matmul(0,1; trans_b=1) -> f32[2,9,23]; anchor=0"},

    {"matmul.integer",
     "(i16[37,50], const i16[50,70], const i32[70]) matmul(0,1; result='i32') -> i32[37,70]; add(3,2) -> i32[37,70]; "
     "anchor=0"},
    {"matmul.integer",
     "(u8[3,19,51], const i8[51,33], const f32[33]) cast(0; to='i16') -> i16[3,19,51]; matmul(3,1; result='i32') -> "
     "i32[3,19,33]; cast(4; to='f32') -> f32[3,19,33]; mul(5,2) -> f32[3,19,33]; anchor=1"},
    {"matmul.integer", "(i16[2,9,17], i16[2,23,17]) matmul(0,1; result='i32' trans_b=1) -> i32[2,9,23]; anchor=0"},

    {"matmul.integer",
     "(u8[37,52], const i8[52,70], const i32[70]) matmul(0,1; result='i32') -> i32[37,70]; sub(3,2) -> i32[37,70]; "
     "anchor=0"},
    {"conv2d.integer",
     "(u8[1,22,9,7]@0231, const i8[19,22,1,1]) conv2d(0,1; result='i32' strides=[1,2]) -> i32[1,19,9,4]@0231; "
     "anchor=0"},
    {"conv2d.integer",
     "(i16[1,16,9,9]@0231, const i16[19,16,3,3], i32[19,1,1]) conv2d(0,1; pads=[1,1,1,1] result='i32') -> "
     "i32[1,19,9,9]@0231; add(3,2) -> i32[1,19,9,9]@0231; anchor=0"},
    {"conv2d.integer",
     "(i16[2,24,7,6]@0231, const i8[37,24,1,1]) conv2d(0,1; result='i32' strides=[2,2]) -> i32[2,37,4,3]@0231; "
     "anchor=0"},
    {"conv2d.integer",
     "(u8[2,18,8,7]@0231, const i8[14,9,3,5]) cast(0; to='i16') -> i16[2,18,8,7]@0231; conv2d(2,1; dilations=[2,1] "
     "group=2 pads=[2,0,1,2] result='i32') -> i32[2,14,7,5]@0231; cast(3; to='f32') -> f32[2,14,7,5]@0231; relu(4) -> "
     "f32[2,14,7,5]@0231; anchor=1"},

    {"conv2d.integer",
     "(u8[2,3,13,16], const i8[19,3,7,8], const i32[19,1,1]) layout_copy(0) -> u8[2,3,13,16]@0231; conv2d(3,1; "
     "result='i32' strides=[2,2]) -> i32[2,19,4,5]@0231; sub(4,2) -> i32[2,19,4,5]@0231; anchor=1"},
    {"conv2d.integer",
     "(u8[1,4,9,12]@0231, const i8[33,4,3,4]) conv2d(0,1; pads=[1,0,0,0] result='i32') -> i32[1,33,8,9]@0231; "
     "anchor=0"},

    {"matmul.tiles",
     "(u8[37,128], const i8[128,70], const i32[70]) matmul(0,1; result='i32') -> i32[37,70]; sub(3,2) -> i32[37,70]; "
     "anchor=0"},
    {"matmul.tiles",
     "(u8[3,19,51], const i8[51,33], const f32[33]) matmul(0,1; result='i32') -> i32[3,19,33]; cast(3; to='f32') -> "
     "f32[3,19,33]; mul(4,2) -> f32[3,19,33]; anchor=0"},
    {"matmul.tiles", "(u8[2,9,68], i8[2,23,68]) matmul(0,1; result='i32' trans_b=1) -> i32[2,9,23]; anchor=0"},
    {"conv2d.tiles",
     "(u8[1,64,9,7]@0231, const i8[19,64,1,1]) conv2d(0,1; result='i32') -> i32[1,19,9,7]@0231; anchor=0"},
    {"conv2d.tiles",
     "(u8[1,16,9,9]@0231, const i8[19,16,3,3], i32[19,1,1]) conv2d(0,1; pads=[1,1,1,1] result='i32' strides=[2,1]) -> "
     "i32[1,19,5,9]@0231; add(3,2) -> i32[1,19,5,9]@0231; anchor=0"},
    {"conv2d.tiles",
     "(u8[2,3,13,16], const i8[19,3,7,8], const i32[19,1,1]) layout_copy(0) -> u8[2,3,13,16]@0231; conv2d(3,1; "
     "result='i32' strides=[2,2]) -> i32[2,19,4,5]@0231; sub(4,2) -> i32[2,19,4,5]@0231; anchor=1"},

    {"matmul.bf16",
     "(f32[37,50], const f32[50,70], const f32[70]) matmul(0,1; bf16=1) -> f32[37,70]; add(3,2) -> f32[37,70]; "
     "anchor=0"},
    {"matmul.bf16",
     "(f32[3,19,51], const f32[51,33]) relu(0) -> f32[3,19,51]; matmul(2,1; bf16=1) -> f32[3,19,33]; anchor=1"},
    {"matmul.bf16", "(f32[2,9,34], f32[2,23,34]) matmul(0,1; bf16=1 trans_b=1) -> f32[2,9,23]; anchor=0"},
    {"conv2d.bf16",
     "(f32[1,24,9,7]@0231, const f32[19,24,1,1]) conv2d(0,1; bf16=1 strides=[2,1]) -> f32[1,19,5,7]@0231; relu(2) -> "
     "f32[1,19,5,7]@0231; anchor=0"},
    {"conv2d.bf16",
     "(f32[1,16,9,9]@0231, const f32[20,8,3,3], f32[20,1,1]) conv2d(0,1; bf16=1 group=2 pads=[1,0,1,2] strides=[1,1]) "
     "-> f32[1,20,9,9]@0231; add(3,2) -> f32[1,20,9,9]@0231; anchor=0"},
    {"conv2d.bf16",
     "(f32[2,3,13,11], const f32[19,3,5,5]) layout_copy(0) -> f32[2,3,13,11]@0231; conv2d(2,1; bf16=1 pads=[2,2,2,2] "
     "strides=[2,2]) -> f32[2,19,7,6]@0231; anchor=1"},
    {"matmul.tiles_bf16",
     "(f32[37,128], const f32[128,70], const f32[70]) matmul(0,1; bf16=1) -> f32[37,70]; add(3,2) -> f32[37,70]; "
     "anchor=0"},
    {"matmul.tiles_bf16",
     "(f32[3,19,51], const f32[51,33]) relu(0) -> f32[3,19,51]; matmul(2,1; bf16=1) -> f32[3,19,33]; anchor=1"},
    {"matmul.tiles_bf16", "(f32[2,9,34], f32[2,23,34]) matmul(0,1; bf16=1 trans_b=1) -> f32[2,9,23]; anchor=0"},
    {"conv2d.tiles_bf16",
     "(f32[1,24,9,7]@0231, const f32[19,24,1,1]) conv2d(0,1; bf16=1 strides=[2,1]) -> f32[1,19,5,7]@0231; relu(2) -> "
     "f32[1,19,5,7]@0231; anchor=0"},
    {"conv2d.tiles_bf16",
     "(f32[1,16,9,9]@0231, const f32[19,16,3,3], f32[19,1,1]) conv2d(0,1; bf16=1 pads=[1,0,1,2] strides=[1,1]) -> "
     "f32[1,19,9,9]@0231; add(3,2) -> f32[1,19,9,9]@0231; anchor=0"},
    {"conv2d.tiles_bf16",
     "(f32[2,3,13,11], const f32[19,3,5,5]) layout_copy(0) -> f32[2,3,13,11]@0231; conv2d(2,1; bf16=1 pads=[2,2,2,2] "
     "strides=[2,2]) -> f32[2,19,7,6]@0231; anchor=1"},

    {"matmul.nbits",
     "(f32[3,96], const u8[48,37], const f32[3,37], const f32[37]) matmul_nbits(0,1,2; zero=8) -> f32[3,37]; add(4,3) "
     "-> f32[3,37]; anchor=0"},
    {"matmul.nbits",
     "(f32[1,64], const u8[64,50], const f32[1,50], const f32[1,50]) matmul_nbits(0,1,2,3) -> f32[1,50]; anchor=0"},
    {"matmul.nbits",
     "(f32[2,7,72], const u8[36,33], const f32[4,33]) matmul_nbits(0,1,2; zero=3) -> f32[2,7,33]; silu(3) -> "
     "f32[2,7,33]; anchor=0"},
    {"matmul.nbits_i8",
     "(i8[3,96], const u8[48,37], const f32[3,37], f32[3,3], const f32[37]) matmul_nbits_i8(0,1,2,3; zero=8) -> "
     "f32[3,37]; add(5,4) -> f32[3,37]; anchor=0"},
    {"matmul.nbits_i8",
     "(i8[1,64], const u8[64,50], const f32[1,50], f32[1,1], const f32[1,50]) matmul_nbits_i8(0,1,2,3,4) -> "
     "f32[1,50]; anchor=0"},
    {"matmul.nbits_i8",
     "(i8[2,17,48], const u8[24,33], const f32[3,33], f32[2,17,3]) matmul_nbits_i8(0,1,2,3) -> f32[2,17,33]; "
     "silu(4) -> f32[2,17,33]; anchor=0"},
    {"matmul.nbits_cached",
     "(f32[61,64], const u8[64,93], const f32[2,93], const f32[2,93]) matmul_nbits(0,1,2,3) -> f32[61,93]; anchor=0"},
    {"matmul.nbits_cached",
     "(f32[5,48], const u8[24,40], const f32[1,40], f32[40]) matmul_nbits(0,1,2) -> f32[5,40]; add(4,3) -> f32[5,40]; "
     "relu(5) -> f32[5,40]; anchor=0"},
    {"matmul.nbits_cached",
     "(f32[29,96], const u8[48,37], const f32[3,37]) matmul_nbits(0,1,2; zero=8) -> f32[29,37]; anchor=0"},

    {"attention.rows",
     "(f32[2,17,16], f32[2,23,16], f32[2,23,12]) matmul(0,1; trans_b=1) -> f32[2,17,23]; softmax(3; axis=2) -> "
     "f32[2,17,23]; matmul(4,2) -> f32[2,17,12]; anchor=2"},
    {"attention.rows",
     "(f32[1,3,29,20]@0213, f32[1,3,20,29]@0312, const f32[], f32[1,1,29,29], f32[1,3,29,20]@0213) matmul(0,1) -> "
     "f32[1,3,29,29]; mul(5,2) -> f32[1,3,29,29]; add(6,3) -> f32[1,3,29,29]; softmax(7; axis=3) -> f32[1,3,29,29]; "
     "matmul(8,4) -> f32[1,3,29,20]@0213; relu(9) -> f32[1,3,29,20]@0213; anchor=4"},
    {"attention.rows",
     "(f32[2,3,9,7], f32[1,1,7,77], f32[9,1], f32[2,1,5,77]) matmul(0,1) -> f32[2,3,9,77]; softmax(4; axis=-1) -> "
     "f32[2,3,9,77]; mul(5,2) -> f32[2,3,9,77]; matmul(6,3; trans_b=1) -> f32[2,3,9,5]; anchor=3"},

    {"reduce.pixels", "(f32[1,19,23,25]@0231) reduce_mean(0; axes=[2,3] keepdims=1) -> f32[1,19,1,1]@0231; anchor=0"},
    {"reduce.pixels",
     "(f32[2,40,19,27]@0231) reduce_sum(0; axes=[2,3] keepdims=1) -> f32[2,40,1,1]@0231; relu(1) -> "
     "f32[2,40,1,1]@0231; anchor=0"},
    {"reduce.pixels", "(f32[1,133,16,33]@0231) reduce_mean(0; axes=[2,3] keepdims=1) -> f32[1,133,1,1]@0231; anchor=0"},

    {"pool.separable",
     "(f32[1,5,19,37]) max_pool2d(0; kernel=[3,3] pads=[1,1,1,1] strides=[2,2]) -> f32[1,5,10,19]; anchor=0"},
    {"pool.separable",
     "(f32[2,3,23,41]) avg_pool2d(0; kernel=[3,5] pads=[1,2,1,2] strides=[1,1]) -> f32[2,3,23,41]; relu(1) -> "
     "f32[2,3,23,41]; anchor=0"},
    {"pool.separable",
     "(f32[1,19,13,13]@0231) max_pool2d(0; kernel=[9,9] pads=[4,4,4,4] strides=[1,1]) -> f32[1,19,13,13]@0231; "
     "anchor=0"},

    {"scan", "(f32[3,70]) cum_sum(0; axis=1) -> f32[3,70]; anchor=0"},
    {"scan", "(f32[2,9,37]) cum_sum(0; axis=1 reverse=1) -> f32[2,9,37]; anchor=0"},
    {"scan", "(i64[5,3]) cum_sum(0; axis=0 exclusive=1) -> i64[5,3]; anchor=0"},

    {"compact", "(f32[3,70], i64[]) compact(0,1; axis=1) -> f32[3,70]; anchor=0"},
    {"compact", "(u8[5,300,2], i64[]) compact(0,1; axis=1) -> u8[5,300,2]; anchor=0"},
    {"compact", "(i64[2,9,37], i64[]) compact(0,1; axis=-1) -> i64[2,9,37]; anchor=0"},

    {"scatter", "(f32[2,9,19], i64[2,5], f32[2,5,19]) scatter(0,1,2; axis=1) -> f32[2,9,19]; anchor=0"},
    {"scatter",
     "(f32[6000], i32[3000], f32[3000]) scatter_reduce(0,1,2; axis=0 reduction='sum') -> f32[6000]; anchor=0"},
    {"scatter", "(i64[7,3], i64[4], i64[4,3]) scatter_reduce(0,1,2; axis=0 reduction='largest') -> i64[7,3]; anchor=0"},

    {"top_k", "(f32[3,1000]) top_k(0; k=7) -> i32[3,7]; anchor=0"},
    {"top_k", "(f32[2,517]) top_k(0; k=300 largest=0) -> i32[2,300]; anchor=0"},
    {"top_k", "(i32[1,4000]) top_k(0; k=100) -> i32[1,100]; anchor=0"},

    {"suppress",
     "(f32[1,4,300], f32[1,3,300], f32[1], f32[1]) non_max_suppression(0,1,2,3; k=7) -> i32[1,3,7]; anchor=0"},
    {"suppress",
     "(f32[2,4,65], f32[2,1,65], f32[1], f32[1]) non_max_suppression(0,1,2,3; k=65) -> i32[2,1,65]; anchor=0"},
    {"suppress", "(f32[1,4,5], f32[1,2,5], f32[1], f32[1]) non_max_suppression(0,1,2,3; k=1) -> i32[1,2,1]; anchor=0"},

    {"default", "(f32[7,19], f32[19]) add(0,1) -> f32[7,19]; relu(2) -> f32[7,19]; anchor=0"},
    {"default", "(f32[5,3,33]) reduce_sum(0; axes=[2] keepdims=0) -> f32[5,3]; anchor=0"},
    {"default", "(const f32[31,17], i64[9]) gather(0,1; axis=0) -> f32[9,17]; anchor=0"},
    {"default", "(f32[5,3,33]) arg_max(0; axis=1 keepdims=0) -> i64[5,33]; anchor=0"},

    {"gpu.conv",
     "(f32[1,8,9,9]@0231, const f32[19,8,3,3], f32[19,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f32[1,19,9,9]@0231; "
     "add(3,2) -> f32[1,19,9,9]@0231; relu(4) -> f32[1,19,9,9]@0231; anchor=0"},
    {"gpu.conv",
     "(f32[1,3,11,13]@0231, const f32[33,3,5,5]) conv2d(0,1; pads=[2,2,2,2] strides=[2,2]) -> f32[1,33,6,7]@0231; "
     "anchor=0"},
    {"gpu.conv",
     "(f32[2,10,8,7]@0231, const f32[14,5,3,3]) conv2d(0,1; dilations=[2,2] group=2 pads=[2,2,2,2]) -> "
     "f32[2,14,8,7]@0231; anchor=0"},
    {"gpu.conv",
     "(f16[1,12,9,7]@0231, const f16[20,12,3,3], const f16[20,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f16[1,20,9,7]@0231; "
     "add(3,2) -> f16[1,20,9,7]@0231; anchor=0"},

    {"gpu.depthwise",
     "(f16[1,24,9,7]@0231, const f16[24,1,3,3], const f16[24,1,1]) conv2d(0,1; group=24 pads=[1,1,1,1]) -> "
     "f16[1,24,9,7]@0231; add(3,2) -> f16[1,24,9,7]@0231; anchor=0"},
    {"gpu.depthwise",
     "(f32[1,19,9,7]@0231, const f32[19,1,3,3]) conv2d(0,1; group=19 pads=[1,1,1,1]) -> f32[1,19,9,7]@0231; anchor=0"},
    {"gpu.depthwise",
     "(f32[1,24,10,11]@0231, const f32[24,1,5,5]) conv2d(0,1; group=24 pads=[2,2,2,2] strides=[2,2]) -> "
     "f32[1,24,5,6]@0231; anchor=0"},
    {"gpu.depthwise",
     "(f32[2,33,6,6]@0231, const f32[33,1,3,3], f32[33,1,1]) conv2d(0,1; dilations=[2,2] group=33 pads=[2,2,2,2]) -> "
     "f32[2,33,6,6]@0231; add(3,2) -> f32[2,33,6,6]@0231; anchor=0"},

    {"gpu.gemm",
     "(f32[37,50], const f32[50,70], const f32[70]) matmul(0,1) -> f32[37,70]; add(3,2) -> f32[37,70]; anchor=0"},
    {"gpu.gemm", "(f32[1,52], const f32[52,19]) matmul(0,1) -> f32[1,19]; anchor=0"},
    {"gpu.gemm", "(f32[2,9,17], f32[2,23,17]) matmul(0,1; trans_b=1) -> f32[2,9,23]; anchor=0"},
    {"gpu.gemm", "(bf16[29,52], const bf16[52,24]) matmul(0,1) -> bf16[29,24]; anchor=0"},

    {"gpu.mma",
     "(f16[37,50], const f16[50,70], const f16[70]) matmul(0,1) -> f16[37,70]; add(3,2) -> f16[37,70]; anchor=0"},
    {"gpu.mma", "(bf16[2,9,64], bf16[2,24,64]) matmul(0,1; trans_b=1) -> bf16[2,9,24]; anchor=0"},
    {"gpu.mma",
     "(f16[1,16,9,7]@0231, const f16[40,16,3,3], const f16[40,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f16[1,40,9,7]@0231; "
     "add(3,2) -> f16[1,40,9,7]@0231; relu(4) -> f16[1,40,9,7]@0231; anchor=0"},
    {"gpu.mma",
     "(f16[1,3,11,13]@0231, const f16[33,3,5,5]) conv2d(0,1; pads=[2,2,2,2] strides=[2,2]) -> f16[1,33,6,7]@0231; "
     "anchor=0"},

    {"gpu.mma",
     "(f32[37,50], const f32[50,70], const f32[70]) matmul(0,1; tf32=1) -> f32[37,70]; add(3,2) -> f32[37,70]; "
     "anchor=0"},
    {"gpu.mma", "(f32[2,9,64], f32[2,24,64]) matmul(0,1; tf32=1 trans_b=1) -> f32[2,9,24]; anchor=0"},
    {"gpu.mma",
     "(f32[1,3,9,7]@0231, const f32[40,3,3,3], const f32[40,1,1]) conv2d(0,1; pads=[1,1,1,1] tf32=1) -> "
     "f32[1,40,9,7]@0231; add(3,2) -> f32[1,40,9,7]@0231; relu(4) -> f32[1,40,9,7]@0231; anchor=0"},

    {"gpu.wgmma",
     "(f16[37,50], const f16[50,70], const f16[70]) matmul(0,1) -> f16[37,70]; add(3,2) -> f16[37,70]; anchor=0"},
    {"gpu.wgmma", "(bf16[2,70,64], bf16[2,24,64]) matmul(0,1; trans_b=1) -> bf16[2,70,24]; anchor=0"},
    {"gpu.wgmma",
     "(f16[1,16,9,8]@0231, const f16[40,16,3,3], const f16[40,1,1]) conv2d(0,1; pads=[1,1,1,1]) -> f16[1,40,9,8]@0231; "
     "add(3,2) -> f16[1,40,9,8]@0231; relu(4) -> f16[1,40,9,8]@0231; anchor=0"},
    {"gpu.wgmma",
     "(f16[1,3,11,13]@0231, const f16[33,3,5,5]) conv2d(0,1; pads=[2,2,2,2] strides=[2,2]) -> f16[1,33,6,7]@0231; "
     "anchor=0"},

    {"gpu.reduce", "(f32[3,5,37]) softmax(0; axis=2) -> f32[3,5,37]; anchor=0"},
    {"gpu.reduce",
     "(f32[9,50], const f32[50], const f32[50]) layer_norm(0,1,2; axis=1 epsilon=1e-05) -> f32[9,50]; anchor=0"},
    {"gpu.reduce",
     "(f32[7,3,33]) reduce_mean(0; axes=[1,2] keepdims=1) -> f32[7,1,1]; relu(1) -> f32[7,1,1]; anchor=0"},
    {"gpu.reduce", "(f32[7,33]) arg_min(0; axis=1 keepdims=0 select_last_index=1) -> i64[7]; anchor=0"},

    {"gpu.pixels", "(f32[1,19,23,25]@0231) reduce_mean(0; axes=[2,3] keepdims=1) -> f32[1,19,1,1]@0231; anchor=0"},
    {"gpu.pixels", "(bf16[2,33,5,7]@0231) reduce_sum(0; axes=[2,3] keepdims=0) -> bf16[2,33]; anchor=0"},
    {"gpu.pixels",
     "(f16[2,40,9,7]@0231) reduce_sum(0; axes=[2,3] keepdims=1) -> f16[2,40,1,1]@0231; relu(1) -> f16[2,40,1,1]@0231; "
     "anchor=0"},

    {"gpu.winograd",
     "(f32[1,8,7,7]@0231, const f32[12,8,3,3]) conv2d(0,1; pads=[1,1,1,1]) -> f32[1,12,7,7]@0231; anchor=0"},
    {"gpu.winograd", "(f32[1,11,7,6]@0231, const f32[17,11,3,3]) conv2d(0,1) -> f32[1,17,5,4]@0231; anchor=0"},
    {"gpu.winograd",
     "(f32[2,10,5,5]@0231, const f32[9,10,3,3], f32[9,1,1], f32[2,9,5,5]@0231) conv2d(0,1; pads=[1,1,1,1]) -> "
     "f32[2,9,5,5]@0231; add(4,2) -> f32[2,9,5,5]@0231; add(5,3) -> f32[2,9,5,5]@0231; relu(6) -> "
     "f32[2,9,5,5]@0231; anchor=0"},

    {"gpu.attention",
     "(f32[2,17,16], f32[2,23,16], f32[2,23,12]) matmul(0,1; trans_b=1) -> f32[2,17,23]; softmax(3; axis=2) -> "
     "f32[2,17,23]; matmul(4,2) -> f32[2,17,12]; anchor=2"},
    {"gpu.attention",
     "(f32[1,3,29,20]@0213, f32[1,3,20,29]@0312, const f32[], f32[1,1,29,29], f32[1,3,29,20]@0213) matmul(0,1) -> "
     "f32[1,3,29,29]; mul(5,2) -> f32[1,3,29,29]; add(6,3) -> f32[1,3,29,29]; softmax(7; axis=3) -> f32[1,3,29,29]; "
     "matmul(8,4) -> f32[1,3,29,20]@0213; anchor=4"},
    {"gpu.attention",
     "(f32[5,4,20,8]@2013, f32[5,4,10,8]@2013, const f32[], f32[5,4,10,8]@2013) matmul(0,1; trans_b=1) -> "
     "f32[5,4,20,10]; mul(4,2) -> f32[5,4,20,10]; softmax(5; axis=3) -> f32[5,4,20,10]; matmul(6,3) -> "
     "f32[5,4,20,8]@2013; relu(7) -> f32[5,4,20,8]@2013; anchor=3"},

    {"gpu.attention_mma",
     "(f16[2,17,16], f16[2,33,16], f16[33], f16[2,33,24]) matmul(0,1; trans_b=1) -> f16[2,17,33]; add(4,2) -> "
     "f16[2,17,33]; softmax(5; axis=2) -> f16[2,17,33]; matmul(6,3) -> f16[2,17,24]; anchor=3"},
    {"gpu.attention_mma",
     "(f16[1,2,37,32]@0213, f16[1,2,32,37]@0312, const f16[], f16[1,1,37,37], f16[1,2,37,32]@0213) matmul(0,1) -> "
     "f16[1,2,37,37]; mul(5,2) -> f16[1,2,37,37]; add(6,3) -> f16[1,2,37,37]; softmax(7; axis=3) -> f16[1,2,37,37]; "
     "matmul(8,4) -> f16[1,2,37,32]@0213; relu(9) -> f16[1,2,37,32]@0213; anchor=4"},
    {"gpu.attention_mma",
     "(bf16[5,4,20,8]@2013, bf16[5,4,10,8]@2013, const bf16[], bf16[5,4,10,8]@2013) matmul(0,1; trans_b=1) -> "
     "bf16[5,4,20,10]; mul(4,2) -> bf16[5,4,20,10]; softmax(5; axis=3) -> bf16[5,4,20,10]; matmul(6,3) -> "
     "bf16[5,4,20,8]@2013; anchor=3"},

    {"gpu.default", "(f32[7,19], f32[19]) add(0,1) -> f32[7,19]; relu(2) -> f32[7,19]; anchor=0"},
    {"gpu.default",
     "(f32[2,12,7,9]@0231) max_pool2d(0; kernel=[3,3] pads=[1,1,1,1] strides=[2,2]) -> f32[2,12,4,5]@0231; anchor=0"},
    {"gpu.default", "(const f32[31,17], i64[9]) gather(0,1; axis=0) -> f32[9,17]; anchor=0"},
    {"gpu.default", "(f32[5,3,33]) arg_max(0; axis=1 keepdims=0) -> i64[5,33]; anchor=0"},
};

}  // namespace temper::conformance
