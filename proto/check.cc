#include "proto/check.h"

#include <cmath>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "proto/limits.h"

namespace temper {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::string_view kPackage = "temper.v1.";

struct Rule {
  const FieldDescriptor* field;
  const FieldLimit* row;
};
using RuleBook = std::unordered_map<const Descriptor*, std::vector<Rule>>;

// The table's rows by message, looked up once.
const RuleBook& Rules() {
  static const RuleBook book = [] {
    RuleBook rules;
    for (const FieldLimit& row : FieldLimits()) {
      const std::string name = absl::StrCat(std::string(kPackage), std::string(row.field));
      const FieldDescriptor* field = DescriptorPool::generated_pool()->FindFieldByName(name);
      if (field != nullptr) rules[field->containing_type()].push_back({field, &row});
    }
    return rules;
  }();
  return book;
}

absl::Status Refuse(const Rule& rule, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(std::string(rule.row->field), " ", why));
}

absl::Status CheckText(const Rule& rule, const std::string& text, bool controls) {
  const int64_t most = rule.row->limit.most;
  if (static_cast<int64_t>(text.size()) > most)
    return Refuse(rule, absl::StrCat("has ", text.size(), " bytes; at most ", most, " are taken"));
  if (!IsUtf8(text)) return Refuse(rule, "is no UTF-8");
  if (!controls && HasControls(text)) return Refuse(rule, "holds control characters");
  return absl::OkStatus();
}

template <typename Number>
absl::Status CheckNumber(const Rule& rule, Number number) {
  const auto least = static_cast<Number>(rule.row->limit.least), most = static_cast<Number>(rule.row->limit.most);
  if (std::is_floating_point_v<Number> && !std::isfinite(static_cast<double>(number)))
    return Refuse(rule, "is no finite number");
  if (least <= number && number <= most) return absl::OkStatus();
  return Refuse(rule, absl::StrCat("is ", number, "; it goes from ", least, " to ", most));
}

absl::Status CheckInteger(const Rule& rule, const Reflection& r, const Message& m, int i) {
  const FieldDescriptor* field = rule.field;
  const bool many = field->is_repeated();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32)
    return CheckNumber<int64_t>(rule, many ? r.GetRepeatedInt32(m, field, i) : r.GetInt32(m, field));
  return CheckNumber<int64_t>(rule, many ? r.GetRepeatedInt64(m, field, i) : r.GetInt64(m, field));
}

// The field's value, or number `i` of its values.
absl::Status CheckValue(const Rule& rule, const Message& m, int i) {
  const Reflection& r = *m.GetReflection();
  const FieldDescriptor* field = rule.field;
  const bool many = field->is_repeated();
  std::string scratch;
  const auto text = [&]() -> const std::string& {
    return many ? r.GetRepeatedStringReference(m, field, i, &scratch) : r.GetStringReference(m, field, &scratch);
  };
  switch (rule.row->limit.kind) {
    case Limit::Kind::kWord:
      return CheckText(rule, text(), false);
    case Limit::Kind::kText:
      return CheckText(rule, text(), true);
    case Limit::Kind::kInteger:
      return CheckInteger(rule, r, m, i);
    case Limit::Kind::kReal:
      return CheckNumber<double>(rule, many ? r.GetRepeatedDouble(m, field, i) : r.GetDouble(m, field));
    case Limit::Kind::kAny:
      return absl::OkStatus();
    case Limit::Kind::kMessage:
      return CheckMessage(many ? r.GetRepeatedMessage(m, field, i) : r.GetMessage(m, field));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckMessage(const Message& message) {
  const auto rules = Rules().find(message.GetDescriptor());
  if (rules == Rules().end()) return absl::OkStatus();  // a message without fields
  const Reflection& reflection = *message.GetReflection();
  for (const Rule& rule : rules->second) {
    const FieldDescriptor* field = rule.field;
    if (!field->is_repeated()) {
      // What is absent has nothing to check; a number that is 0 was left out by its sender, and is checked as 0.
      if (field->has_presence() && !reflection.HasField(message, field)) continue;
      TEMPER_RETURN_IF_ERROR(CheckValue(rule, message, 0));
      continue;
    }
    const int count = reflection.FieldSize(message, field);
    if (count > rule.row->limit.items)
      return Refuse(rule, absl::StrCat("has ", count, " items; at most ", rule.row->limit.items, " are taken"));
    for (int i = 0; i < count; ++i) TEMPER_RETURN_IF_ERROR(CheckValue(rule, message, i));
  }
  return absl::OkStatus();
}

absl::Status CheckAnswer(const Message& message) {
  const absl::Status checked = CheckMessage(message);
  return checked.ok() ? checked : RefusedAnswer(checked.message());
}

absl::Status RefusedAnswer(absl::string_view why) {
  return absl::DataLossError(absl::StrCat("the server's answer is refused: ", why));
}

}  // namespace temper
