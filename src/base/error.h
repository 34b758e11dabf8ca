// The three tiers of failure: CHECK for our own bugs (abort with file, line and values), Error for bad files,
// arguments and requests (thrown while loading or parsing, caught in main), and Fault for I/O trouble inside
// a round, which is a value: the lanes it touches fail and the others go on.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace weir {

/// One line that says what is wrong, where (file, tensor, offset, field) and what would be right.
class Error : public std::runtime_error {
 public:
  enum class Kind { input, failure };  ///< input: usage or a bad file (exit code 2); failure: exit code 1
  Error(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }
  int exit_code() const { return kind_ == Kind::input ? 2 : 1; }

 private:
  Kind kind_;
};

/// A bad file, option or request: `throw input_error("{}: ...", path)`.
template <typename... Args>
Error input_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error(Error::Kind::input, fmt::format(format, std::forward<Args>(args)...));
}

/// Something that should have worked did not (a read, an allocation).
template <typename... Args>
Error failure(fmt::format_string<Args...> format, Args&&... args) {
  return Error(Error::Kind::failure, fmt::format(format, std::forward<Args>(args)...));
}

/// Trouble inside a round, as a value. An empty message means there is none.
struct Fault {
  std::string message;  ///< one line: what, and the file and offset where there is one
  explicit operator bool() const { return !message.empty(); }
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& details);

template <typename... Args>
std::string check_details(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}
inline std::string check_details() { return {}; }

/// Our own bugs only: CHECK(a == b, "a {} b {}", a, b).
#define WEIR_CHECK(condition, ...)                                                              \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::weir::check_failed(__FILE__, __LINE__, #condition, ::weir::check_details(__VA_ARGS__)); \
  } while (false)

}  // namespace weir
