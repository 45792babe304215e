#include "compiler/ops/templates/conv2d_shape.h"

#include <algorithm>

#include "compiler/ops/templates/element.h"
#include "compiler/schedule/nest.h"

namespace temper {

Conv2dShape::Conv2dShape(const Workload& workload, int index) {
  const Workload::Call& call = workload.calls[index];
  const Shape& x = workload.TypeOf(call.args[0]).shape;
  const Shape& f = workload.TypeOf(call.args[1]).shape;
  n = x[0], c = x[1], h = x[2], w = x[3];
  oc = f[0], kh = f[2], kw = f[3];
  oh = call.type.shape[2], ow = call.type.shape[3];
  group = call.attrs.Int("group", 1);
  std::vector<int64_t> strides = call.attrs.Ints("strides", {1, 1}), dilations = call.attrs.Ints("dilations", {1, 1});
  std::vector<int64_t> pads = call.attrs.Ints("pads", {0, 0, 0, 0});
  stride_h = strides[0], stride_w = strides[1];
  dilation_h = dilations[0], dilation_w = dilations[1];
  top = pads[0], left = pads[1], bottom = pads[2], right = pads[3];
}

int64_t TiledAxis::first_inside() const { return std::min(CeilDiv(before, tile * stride), tiles()); }

int64_t TiledAxis::end_inside() const {
  const int64_t room = in - 1 + before - reach();
  const int64_t inside = room < 0 ? 0 : room / (tile * stride) + 1;
  return std::max(first_inside(), std::min(out / tile, inside));
}

ir::Expr ValueWhere(const std::vector<ir::Expr>& conditions, const ir::Expr& value) {
  const ir::Expr all = nest::Conjoin(conditions);
  return all ? ir::Select(all, value, ir::Const(0, value->dtype)) : value;
}

bool IsOfElement(const Workload& w, const Workload::Call& call, DType element) {
  return call.type.dtype == element &&
         std::ranges::all_of(call.args, [&](int arg) { return arg < 0 || w.TypeOf(arg).dtype == element; });
}

bool IsChannelsLastConv2d(const Workload& w, bool prologue, DType element) {
  return IsOfElement(w, w.calls[w.anchor], element) && IsConv2dOfPixels(w, prologue);
}

bool IsConv2dOfPixels(const Workload& w, bool prologue) {
  const Workload::Call& call = w.calls[w.anchor];
  const int inputs = static_cast<int>(w.inputs.size());
  return call.op == "conv2d" && (w.anchor == 0 || prologue) && AnchorReadsElementwise(w) && call.args[1] < inputs &&
         call.args[0] != call.args[1] && w.TypeOf(call.args[0]).perm == kChannelsLast &&
         w.output().perm == kChannelsLast;
}

bool ConvReadsFirstCall(const Workload& w) {
  const int inputs = static_cast<int>(w.inputs.size());
  if (w.anchor != 1 || inputs < 2 || !w.inputs[1].constant) return false;
  const Workload::Call& conv = w.calls[1];
  const auto reads_either = [&](const Workload::Call& call) {
    return std::ranges::count(call.args, 1) > 0 || std::ranges::count(call.args, inputs) > 0;
  };
  return w.calls[0].args[0] == 0 && conv.op == "conv2d" && conv.args[0] == inputs && conv.args[1] == 1 &&
         conv.type.perm == kChannelsLast && w.output().perm == kChannelsLast &&
         std::none_of(w.calls.begin() + 2, w.calls.end(), reads_either);
}

bool ReadsPlanes(const Workload& w) {
  if (!ConvReadsFirstCall(w) || FindOp(w.calls[0].op)->move != Move::kSame) return false;
  const Conv2dShape s(w);
  return w.TypeOf(0).dtype == w.calls[0].type.dtype && s.group == 1 && s.c <= kFewChannels;
}

std::optional<ops::PlaneWindow> UnfoldedPlanes(const Workload& w) {
  constexpr int64_t kWholeVectors = 16;  // channels, of every CPU's vectors of elements
  if (!ConvReadsFirstCall(w) || !IsOfElement(w, w.calls[1])) return std::nullopt;
  const Workload::Call& unfold = w.calls[0];
  if (unfold.op != "unfold_planes" || w.inputs[0].type.perm != kChannelsLast || unfold.type.perm != kChannelsLast)
    return std::nullopt;
  const auto window = ops::PlaneWindow::Of(unfold.attrs, w.inputs[0].type.shape);
  const bool whole = window.ok() && window->group == Conv2dShape(w).group && window->channels % kWholeVectors == 0;
  return whole ? std::optional(*window) : std::nullopt;
}

bool AreConvolutionsInARow(const Workload& w) {
  const int inputs = static_cast<int>(w.inputs.size());
  const Workload::Call &first = w.calls.front(), &anchor = w.calls[w.anchor];
  const auto is_conv = [&](const Workload::Call& call) {
    return call.op == "conv2d" && IsOfElement(w, call) && call.args[1] < inputs && w.inputs[call.args[1]].constant &&
           w.TypeOf(call.args[0]).perm == kChannelsLast && call.type.perm == kChannelsLast;
  };
  if (w.anchor == 0 || !is_conv(first) || !is_conv(anchor) || w.output().perm != kChannelsLast) return false;
  // The filters are packed, so nothing else can read them.
  const auto readers = [&](int filter) {
    int64_t n = 0;
    for (const Workload::Call& call : w.calls) n += std::ranges::count(call.args, filter);
    return n;
  };
  return first.args[0] < inputs && anchor.args[0] == inputs + w.anchor - 1 && readers(first.args[1]) == 1 &&
         readers(anchor.args[1]) == 1 &&
         std::all_of(w.calls.begin() + 1, w.calls.begin() + w.anchor,
                     [](const Workload::Call& call) { return FindOp(call.op)->pattern == OpPattern::kElementwise; });
}

}  // namespace temper
