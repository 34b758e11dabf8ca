#include "gguf/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <type_traits>

#include "base/file.h"
#include "gguf/keys.h"

namespace weir::gguf {
namespace {

constexpr size_t listed_whole = 8, listed_first = 6;

std::string in_words(double x) { return fmt::format("{:.6g}", x); }
std::string in_words(std::string_view text) { return quote(std::string(text)); }

template <typename T>
std::string list(const ArrayView<T>& elements, std::string (*words)(const T&)) {
  if (elements.size() > 1 &&
      std::all_of(elements.begin(), elements.end(), [&](const T& element) { return element == elements[0]; }))
    return fmt::format("{} times {}", elements.size(), words(elements[0]));
  const size_t shown = elements.size() > listed_whole ? listed_first : elements.size();
  std::string text = "[";
  for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + words(elements[i]);
  text += "]";
  return shown == elements.size() ? text : fmt::format("{} and {} more", text, elements.size() - shown);
}

std::string in_words(const Array& array) {
  if (array.has_strings())
    return list<std::string_view>(array.strings(),
                                  [](const std::string_view& text) { return in_words(text); });
  if (array.has_reals()) return list<double>(array.reals(), [](const double& x) { return in_words(x); });
  switch (array.element) {
    case value_bool:
      return list<int64_t>(array.integers(),
                           [](const int64_t& x) { return std::string(x ? "true" : "false"); });
    case value_u64:
      return list<int64_t>(array.integers(),
                           [](const int64_t& x) { return fmt::format("{}", static_cast<uint64_t>(x)); });
    default:
      return list<int64_t>(array.integers(), [](const int64_t& x) { return fmt::format("{}", x); });
  }
}

}  // namespace

std::string describe(const Value& value) {
  return std::visit(
      [](const auto& data) -> std::string {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, bool>)
          return data ? "true" : "false";
        else if constexpr (std::is_integral_v<T>)
          return fmt::format("{}", data);
        else
          return in_words(data);
      },
      value.data);
}

}  // namespace weir::gguf
