// Files that must not outlive the process, whichever way it ends. The one place that knows them all, for a
// signal's handler.
#pragma once

#include <string>

namespace weir {

/// A path that is removed with this object, and by remove_temporaries(). Create the file after it, so that
/// there is no moment in which nobody knows of it.
class Temporary {
 public:
  Temporary() = default;
  explicit Temporary(std::string path);
  Temporary(Temporary&& other) noexcept;
  Temporary& operator=(Temporary&& other) noexcept;
  ~Temporary() { remove(); }

  const std::string& path() const { return path_; }
  /// The file stays, or is no longer there.
  void release();
  void remove();

 private:
  std::string path_;       ///< empty: none
  char* known_ = nullptr;  ///< the copy that remove_temporaries() sees
};

/// Removes the files of all Temporary objects; only calls that are safe in a signal's handler. For the end of
/// the process: the objects do not learn of it.
void remove_temporaries() noexcept;

}  // namespace weir
