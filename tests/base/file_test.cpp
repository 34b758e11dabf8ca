// Owned descriptors: whole reads or an error with path and offset, whole writes or the old file.
#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/error.h"

namespace weir {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  FileTest() { std::filesystem::create_directories(folder_); }
  ~FileTest() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string folder_ = testing::TempDir() + "weir_file_test_" + std::to_string(::getpid());
};

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(FileTest, ReadsExactlyAtAnOffset) {
  write_file_atomically(path("digits"), "0123456789");
  const InputFile file = InputFile::open(path("digits"));
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(file.path(), path("digits"));
  char buffer[4] = {};
  file.pread_exact(buffer, 3, 7);
  EXPECT_STREQ(buffer, "789");
  EXPECT_NO_THROW(file.pread_exact(buffer, 0, 10));
}

TEST_F(FileTest, AReadPastTheEndNamesPathAndOffset) {
  write_file_atomically(path("digits"), "0123456789");
  const InputFile file = InputFile::open(path("digits"));
  char buffer[4];
  EXPECT_THAT(error_of([&] { file.pread_exact(buffer, 4, 7); }),
              AllOf(HasSubstr(path("digits")), HasSubstr("ends at offset 10"), HasSubstr("up to 11")));
}

TEST_F(FileTest, OpeningWhatIsNoRegularFile) {
  EXPECT_THAT(error_of([&] { InputFile::open(path("absent")); }),
              AllOf(HasSubstr(path("absent")), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { InputFile::open(folder_); }), HasSubstr("is a directory"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { InputFile::open(path("pipe")); }), HasSubstr("not a regular file"));
}

TEST_F(FileTest, DescriptorsCloseOnceAndMove) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const FileDescriptor reading(ends[0]);
  {
    FileDescriptor first(ends[1]);
    FileDescriptor second;
    second = std::move(first);
    EXPECT_FALSE(first);  // NOLINT: moved from on purpose
    EXPECT_EQ(second.get(), ends[1]);
  }
  char byte;
  EXPECT_EQ(::read(reading.get(), &byte, 1), 0);  // the writing end is closed
}

TEST_F(FileTest, AnAtomicWriteReplacesTheWholeFile) {
  write_file_atomically(path("f"), "a long old content");
  write_file_atomically(path("f"), "new");
  EXPECT_EQ(content(path("f")), "new");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileTest, WithoutCommitTheOldFileStaysAndNoTemporaryIsLeft) {
  write_file_atomically(path("f"), "old");
  {
    AtomicFile file(path("f"));
    file.write("new", 3);
    EXPECT_EQ(entries(), 2u);
  }
  EXPECT_EQ(content(path("f")), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileTest, ASignalsHandlerRemovesWhatIsNotCommitted) {
  write_file_atomically(path("f"), "old");
  write_file_atomically(path("mine"), "mine");
  AtomicFile first(path("f")), second(path("g"));
  {
    Temporary kept(path("mine"));
    kept.release();
    AtomicFile third(path("h"));
  }
  EXPECT_EQ(entries(), 4u);
  remove_temporaries();
  EXPECT_EQ(entries(), 2u);
  EXPECT_EQ(content(path("f")), "old");
  EXPECT_EQ(content(path("mine")), "mine");
  EXPECT_THAT(error_of([&] { first.commit(); }), HasSubstr(path("f")));
}

TEST_F(FileTest, MoreTemporariesThanAHandlerKnowsStillGoWithTheirObjects) {
  {
    std::vector<Temporary> many;
    for (int i = 0; i < 40; ++i) {
      many.emplace_back(path("t" + std::to_string(i)));
      std::ofstream(many.back().path()) << "x";
    }
    EXPECT_EQ(entries(), 40u);
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(FileTest, AFailedWriteNamesThePath) {
  EXPECT_THAT(error_of([&] { AtomicFile(path("no/folder")); }), HasSubstr(path("no/folder")));
  std::filesystem::create_directory(path("taken"));
  EXPECT_THAT(error_of([&] { write_file_atomically(path("taken"), "x"); }),
              AllOf(HasSubstr(path("taken")), HasSubstr("directory")));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(FileTest, ALinkIsFollowedAndADeviceIsWrittenThrough) {
  write_file_atomically(path("target"), "old");
  std::filesystem::create_symlink(path("target"), path("link"));
  write_file_atomically(path("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(content(path("target")), "new");
  write_file_atomically("/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null")) << "never replaced by a file";
}

TEST(Quote, KeepsMessagesOnOneLine) {
  EXPECT_EQ(quote("blk.0.weight"), "'blk.0.weight'");
  EXPECT_EQ(quote("a\nb\xff"), "'a\\x0ab\\xff'");
  EXPECT_EQ(quote(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
}

}  // namespace
}  // namespace weir
