#include "compiler/frontend/onnx/parse.h"

#include <cstdint>
#include <limits>
#include <string>

namespace temper::onnx_frontend {
namespace {

// The encoding of protobuf messages: fields one after another, each with a tag of its number and wire type.
enum WireType : uint32_t { kVarint = 0, k64Bits = 1, kBytes = 2, k32Bits = 5 };

struct Field {
  uint32_t number = 0;
  WireType type = kVarint;
  std::string_view whole;    // with its tag
  std::string_view content;  // of kBytes
  bool Is(int wanted) const { return type == kBytes && number == static_cast<uint32_t>(wanted); }
};

bool TakeVarint(std::string_view& rest, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// False: `rest` does not begin with a field, or with one of an old kind (a group), which ONNX has none of.
bool TakeField(std::string_view& rest, Field& field) {
  const std::string_view before = rest;
  uint64_t tag = 0, length = 0;
  if (!TakeVarint(rest, tag) || tag > std::numeric_limits<uint32_t>::max()) return false;
  field.number = static_cast<uint32_t>(tag >> 3);
  field.type = static_cast<WireType>(tag & 7);
  switch (field.type) {
    case kVarint: {
      uint64_t ignored = 0;
      if (!TakeVarint(rest, ignored)) return false;
      break;
    }
    case k64Bits:
      length = 8;
      break;
    case k32Bits:
      length = 4;
      break;
    case kBytes:
      if (!TakeVarint(rest, length)) return false;
      break;
    default:
      return false;
  }
  if (length > rest.size()) return false;
  field.content = rest.substr(0, length);
  rest.remove_prefix(length);
  field.whole = before.substr(0, before.size() - rest.size());
  return true;
}

template <typename F>
bool ForEachField(std::string_view message, F f) {
  for (Field field; !message.empty();) {
    if (!TakeField(message, field) || !f(field)) return false;
  }
  return true;
}

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void PutBytes(int number, std::string_view content, std::string& out) {
  PutVarint(static_cast<uint64_t>(number) << 3 | kBytes, out);
  PutVarint(content.size(), out);
  out.append(content);
}

bool StripTensor(std::string_view message, std::string& out, std::string_view& raw) {
  return ForEachField(message, [&](const Field& field) {
    const bool is_raw = field.Is(onnx::TensorProto::kRawDataFieldNumber);
    if (is_raw) raw = field.content;  // the last one counts
    if (!is_raw || raw.empty()) out.append(field.whole);
    return true;
  });
}

// Copies the message, with what `strip` leaves of each field `number`.
template <typename F>
bool StripFields(std::string_view message, int number, std::string& out, F strip) {
  return ForEachField(message, [&](const Field& field) {
    if (!field.Is(number)) {
      out.append(field.whole);
      return true;
    }
    std::string stripped;
    if (!strip(field.content, stripped)) return false;
    PutBytes(number, stripped, out);
    return true;
  });
}

bool StripModel(std::string_view message, std::string& out, std::vector<std::string_view>& raw) {
  const auto strip_tensor = [&](std::string_view tensor, std::string& to) {
    return StripTensor(tensor, to, raw.emplace_back());
  };
  const auto strip_graph = [&](std::string_view graph, std::string& to) {
    return StripFields(graph, onnx::GraphProto::kInitializerFieldNumber, to, strip_tensor);
  };
  return StripFields(message, onnx::ModelProto::kGraphFieldNumber, out, strip_graph);
}

}  // namespace

bool ParseModel(std::string_view bytes, ParsedModel& model) {
  std::string stripped;
  return StripModel(bytes, stripped, model.raw) && model.proto.ParseFromString(stripped) &&
         model.raw.size() == static_cast<size_t>(model.proto.graph().initializer_size());
}

}  // namespace temper::onnx_frontend
