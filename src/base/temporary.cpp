#include "base/temporary.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace weir {

namespace {

// More than one process has at a time; what does not fit is only not removed at a signal. A pointer belongs
// to whoever takes it out. A handler leaks what it took, so no thread frees what it reads.
using Known = std::atomic<char*>;
static_assert(Known::is_always_lock_free, "a signal's handler may not wait");
std::array<Known, 16> known, taken;  // taken: what a handler took out, never freed

char* remember(const std::string& path) {
  char* copy = strdup(path.c_str());
  if (!copy) return nullptr;
  for (Known& slot : known) {
    char* none = nullptr;
    if (slot.compare_exchange_strong(none, copy)) return copy;
  }
  std::free(copy);
  return nullptr;
}

void forget(char* copy) {
  if (!copy) return;
  for (Known& slot : known) {
    char* expected = copy;
    if (slot.compare_exchange_strong(expected, nullptr)) return std::free(copy);
  }
}

}  // namespace

Temporary::Temporary(std::string path) : path_(std::move(path)), known_(remember(path_)) {}

Temporary::Temporary(Temporary&& other) noexcept
    : path_(std::exchange(other.path_, {})), known_(std::exchange(other.known_, nullptr)) {}

Temporary& Temporary::operator=(Temporary&& other) noexcept {
  if (this == &other) return *this;
  remove();
  path_ = std::exchange(other.path_, {});
  known_ = std::exchange(other.known_, nullptr);
  return *this;
}

void Temporary::release() {
  forget(std::exchange(known_, nullptr));
  path_.clear();
}

void Temporary::remove() {
  if (!path_.empty()) ::unlink(path_.c_str());
  release();
}

void remove_temporaries() noexcept {
  for (size_t i = 0; i < known.size(); ++i)
    if (char* path = known[i].exchange(nullptr)) {
      ::unlink(path);
      taken[i].store(path);
    }
}

}  // namespace weir
