// Opening a model: one file, or all parts of a split one, joined into one tensor table.
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "gguf/header.h"
#include "gguf/keys.h"
#include "gguf/split.h"

namespace weir::gguf {

struct ModelBuilder {
  Model model;

  /// Takes over the header's tensors as those of the next file; its metadata where it is the first.
  void add(const Cursor& cursor, Header header) {
    const auto file = static_cast<uint32_t>(model.files_.size());
    model.files_.push_back({cursor.path(), cursor.size(), header.data_offset});
    for (Tensor& tensor : header.tensors) {
      tensor.file = file;
      const auto [entry, fresh] = model.index_.try_emplace(tensor.name, model.tensors_.size());
      if (!fresh)
        throw input_error("{}: tensor {} is also in {}; a name may appear once only", cursor.path(),
                          quote(tensor.name), model.files_[model.tensors_[entry->second].file].path);
      model.tensors_.push_back(std::move(tensor));
    }
    if (model.tensors_.size() > max_tensors)
      throw input_error("{}: the parts up to this one have {} tensors, at most {} are allowed", cursor.path(),
                        model.tensors_.size(), max_tensors);
    if (file == 0) model.metadata_ = std::move(header.metadata);
  }

  /// `part` must say that it is part `no` of `count`.
  static void check_part(const Model& part, int no, int count) {
    const int64_t own_no = part.require_integer(key_split_no);
    if (own_no != no)
      throw input_error("{}: key '{}' is {}, but by its name it should be {}", part.path(), key_split_no,
                        own_no, no);
    const int64_t own_count = part.require_integer(key_split_count);
    if (own_count != count)
      throw input_error("{}: key '{}' is {}, but the first part says {}", part.path(), key_split_count,
                        own_count, count);
  }

  void add_part(const std::string& path, int no, int count) {
    const InputFile file = [&] {
      try {
        return InputFile::open(path);
      } catch (const Error& error) {
        throw input_error("{}: part {} of {} cannot be opened: {}", model.path(), no + 1, count,
                          error.what());
      }
    }();
    Cursor cursor(file);
    ModelBuilder part;
    part.add(cursor, read_header(cursor));
    check_part(part.model, no, count);
    Header rest;
    rest.tensors = std::move(part.model.tensors_);
    rest.data_offset = part.model.files_.front().data_offset;
    add(cursor, std::move(rest));
  }

  void check_tensor_count() const {
    const auto expected = model.integer(key_split_tensors);
    if (!expected || *expected == static_cast<int64_t>(model.tensors_.size())) return;
    throw input_error("{}: key '{}' is {}, but the {} parts have {} tensors", model.path(), key_split_tensors,
                      *expected, model.files_.size(), model.tensors_.size());
  }
};

namespace {

/// Parts of the model whose first file this is. Throws where the file is a later part.
int count_parts(const Model& first) {
  const int64_t count = first.integer(key_split_count).value_or(1);
  if (count < 0 || count > max_parts)
    throw input_error("{}: key '{}' is {}, expected 0 to {}", first.path(), key_split_count, count,
                      max_parts);
  if (count <= 1) return 1;
  const int64_t no = first.require_integer(key_split_no);
  if (no < 0 || no >= count)
    throw input_error("{}: key '{}' is {}, expected 0 to {}", first.path(), key_split_no, no, count - 1);
  const int parts = static_cast<int>(count);
  if (no == 0) return parts;
  const auto prefix = split_prefix(first.path(), static_cast<int>(no), parts);
  throw input_error("{}: is part {} of {}; open the first part{}", first.path(), no + 1, parts,
                    prefix ? ": " + split_path(*prefix, 0, parts) : ", the one whose split.no is 0");
}

}  // namespace

Model Model::open(const std::string& path) {
  ModelBuilder builder;
  {
    const InputFile file = InputFile::open(path);
    Cursor cursor(file);
    builder.add(cursor, read_header(cursor));
  }
  const int parts = count_parts(builder.model);
  if (parts > 1) {
    const auto prefix = split_prefix(path, 0, parts);
    if (!prefix)
      throw input_error("{}: is part 1 of {}, so its name must end in {}", path, parts,
                        split_path("", 0, parts));
    for (int no = 1; no < parts; ++no) builder.add_part(split_path(*prefix, no, parts), no, parts);
    builder.check_tensor_count();
  }
  return std::move(builder.model);
}

Model Model::parse(std::span<const uint8_t> bytes, const std::string& name) {
  Cursor cursor(name, bytes);
  ModelBuilder builder;
  builder.add(cursor, read_header(cursor));
  if (count_parts(builder.model) > 1)
    throw input_error("{}: a split model can only be opened from files", name);
  return std::move(builder.model);
}

}  // namespace weir::gguf
