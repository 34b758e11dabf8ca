// The tensor table: names, shapes, types and where each tensor's bytes lie. A table that passes has unique
// names, positive dimensions whose product fits int64, whole blocks, and disjoint aligned ranges inside the
// file.
#include <algorithm>
#include <limits>
#include <set>

#include "gguf/header.h"
#include "gguf/keys.h"

namespace weir::gguf {
namespace {

/// The Error's start for a tensor whose place in the header has been left behind.
std::string at(const Cursor& cursor, const Tensor& tensor) {
  return fmt::format("{}: tensor {}", cursor.path(), quote(tensor.name));
}

void read_dims(Cursor& cursor, Tensor& tensor) {
  const auto n_dims = cursor.scalar<uint32_t>("dimension count");
  if (n_dims < 1 || n_dims > max_dims)
    throw cursor.error("it has {} dimensions, expected 1 to {}", n_dims, max_dims);
  tensor.n_dims = static_cast<int>(n_dims);
  int64_t elements = 1;
  for (uint32_t i = 0; i < n_dims; ++i) {
    const auto dim = static_cast<int64_t>(cursor.scalar<uint64_t>("dimension"));
    if (dim < 1) throw cursor.error("dimension {} is {}, expected at least 1", i, dim);
    if (__builtin_mul_overflow(elements, dim, &elements))
      throw cursor.error("the product of its dimensions does not fit 63 bits");
    tensor.dims[i] = dim;
  }
}

void read_type(Cursor& cursor, Tensor& tensor) {
  const auto id = cursor.scalar<uint32_t>("type");
  tensor.info = type_info(id);
  if (!tensor.info) throw cursor.error("unknown tensor type id {}", id);
  tensor.type = tensor.info->type;
  const int block = tensor.info->block_elements;
  if (tensor.dims[0] % block != 0)
    throw cursor.error("dimension 0 is {}, not a multiple of {}'s block of {}", tensor.dims[0],
                       tensor.info->name, block);
  const auto blocks = static_cast<uint64_t>(tensor.elements() / block);
  if (__builtin_mul_overflow(blocks, static_cast<uint64_t>(tensor.info->block_bytes), &tensor.bytes))
    throw cursor.error("its size in bytes does not fit 64 bits");
}

/// Leaves `offset` as the file has it: relative to the tensor data.
Tensor read_tensor(Cursor& cursor, uint64_t alignment) {
  Tensor tensor;
  tensor.name = cursor.string("tensor name", max_tensor_name);
  if (tensor.name.empty()) throw cursor.error("the tensor name is empty");
  cursor.set_subject("tensor " + quote(tensor.name));
  read_dims(cursor, tensor);
  read_type(cursor, tensor);
  tensor.offset = cursor.scalar<uint64_t>("offset");
  if (tensor.offset % alignment != 0)
    throw cursor.error("its offset {} is not a multiple of the alignment {}", tensor.offset, alignment);
  return tensor;
}

void check_inside_file(const Cursor& cursor, const std::vector<Tensor>& tensors) {
  uint64_t needed = 0;
  for (const Tensor& tensor : tensors) needed = std::max(needed, tensor.offset + tensor.bytes);
  if (needed <= cursor.size()) return;
  for (const Tensor& tensor : tensors)
    if (tensor.offset + tensor.bytes > cursor.size())
      throw input_error(
          "{}: its data ends at byte {}, but the file has {} bytes; all tensors need {}: truncated",
          at(cursor, tensor), tensor.offset + tensor.bytes, cursor.size(), needed);
}

void check_disjoint(const Cursor& cursor, const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> order;
  order.reserve(tensors.size());
  for (const Tensor& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const Tensor* a, const Tensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Tensor &before = *order[i - 1], &after = *order[i];
    if (before.offset + before.bytes > after.offset)
      throw input_error("{}: its data at byte {} overlaps tensor {}, which ends at {}", at(cursor, after),
                        after.offset, quote(before.name), before.offset + before.bytes);
  }
}

}  // namespace

void read_tensor_table(Cursor& cursor, uint64_t count, uint64_t alignment, Header& header) {
  std::vector<Tensor>& tensors = header.tensors;
  std::set<std::string, std::less<>> names;
  for (uint64_t i = 0; i < count; ++i) {
    cursor.set_subject(fmt::format("tensor {} of {}", i + 1, count));
    tensors.push_back(read_tensor(cursor, alignment));
    if (!names.insert(tensors.back().name).second) throw cursor.error("the name appears twice");
  }
  cursor.set_subject({});
  // Padding only stands before tensor data.
  header.data_offset = tensors.empty() ? cursor.position() : align_up(cursor.position(), alignment);
  for (Tensor& tensor : tensors) {
    uint64_t end = 0;
    if (__builtin_add_overflow(tensor.offset, header.data_offset, &tensor.offset) ||
        __builtin_add_overflow(tensor.offset, tensor.bytes, &end))
      throw input_error("{}: its offset and size of {} bytes exceed 64 bits", at(cursor, tensor),
                        tensor.bytes);
  }
  check_inside_file(cursor, tensors);
  check_disjoint(cursor, tensors);
}

}  // namespace weir::gguf
