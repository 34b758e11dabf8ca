// Whether this build runs under a sanitizer: then neither its memory nor its time is the program's own.
#pragma once

namespace weir::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace weir::test
