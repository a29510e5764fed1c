// SPDX-License-Identifier: Apache-2.0
// Memory that processes of one container share counts once, as long as anybody holds it, whoever goes first. Each
// process is a child that does what it is told; the scenario itself uses no GPU.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "test/preload/guest.h"

namespace guest {
namespace {

constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

enum class Do : uint64_t { kCreate, kExport, kImport, kRelease, kMap, kUnmap, kAllocate, kFree, kUsed, kTotal, kFork };

struct Order {
  Do what;
  uint64_t subject;  // a handle, an address, or nothing
  uint64_t bytes;
};

struct Answer {
  uint64_t result;  // CUresult
  uint64_t value;
};

// One datagram and, unless `fd` is negative, a descriptor. The sender's stays open.
template <typename T>
void Tell(int wire, const T& what, int fd) {
  T copy = what;
  iovec data{&copy, sizeof copy};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  EXPECT_SAME(sendmsg(wire, &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof copy));
}

// False at the end of the wire.
template <typename T>
bool Hear(int wire, T* what, int* fd) {
  iovec data{what, sizeof *what};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(wire, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof *what)) return false;
  *fd = -1;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) std::memcpy(fd, CMSG_DATA(header), sizeof *fd);
  return true;
}

// A process of the container, or of another one.
class Peer {
 public:
  explicit Peer(const char* region = nullptr) {
    EXPECT_SAME(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // also when the scenario fails
      if (region != nullptr) setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", region, 1);
      Live(ends_[1]);
    }
    close(ends_[1]);
  }
  ~Peer() {
    Kill();
    close(ends_[0]);
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void Kill() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    pid_ = -1;
  }

  uint64_t Create(uint64_t bytes) { return Good({Do::kCreate, 0, bytes}); }
  int Export(uint64_t handle) {
    int fd = -1;
    EXPECT_SAME(Ask({Do::kExport, handle, 0}, -1, &fd).result, CUDA_SUCCESS);
    EXPECT(fd >= 0);
    return fd;
  }
  uint64_t Import(int fd) {
    int none = -1;
    const Answer answer = Ask({Do::kImport, 0, 0}, fd, &none);
    EXPECT_SAME(answer.result, CUDA_SUCCESS);
    return answer.value;
  }
  bool TryImport(int fd) {
    int none = -1;
    return Ask({Do::kImport, 0, 0}, fd, &none).result == CUDA_SUCCESS;
  }
  void CannotImport(int fd) { EXPECT(!TryImport(fd)); }
  void Release(uint64_t handle) { Good({Do::kRelease, handle, 0}); }
  uint64_t Map(uint64_t handle, uint64_t bytes) { return Good({Do::kMap, handle, bytes}); }
  void Unmap(uint64_t address, uint64_t bytes) { Good({Do::kUnmap, address, bytes}); }
  uint64_t Used() { return Good({Do::kUsed, 0, 0}); }
  // In a child of its own: whether that one may free what this one has.
  void Fork() { Good({Do::kFork, 0, 0}); }

  // All that is left under the limit can be had, to the last byte, and no byte more.
  void Fill() {
    const uint64_t held = simgpu_used_bytes(0);
    const uint64_t limit = Good({Do::kTotal, 0, 0});
    EXPECT(held < limit);
    const uint64_t rest = Good({Do::kAllocate, 0, limit - held});
    EXPECT_SAME(simgpu_used_bytes(0), limit);
    int none = -1;
    EXPECT_SAME(Ask({Do::kAllocate, 0, 512}, -1, &none).result, CUDA_ERROR_OUT_OF_MEMORY);
    Good({Do::kFree, rest, 0});
    EXPECT_SAME(Used(), held);
  }

 private:
  Answer Ask(const Order& order, int fd, int* received) {
    Answer answer{};
    Tell(ends_[0], order, fd);
    EXPECT(Hear(ends_[0], &answer, received));
    return answer;
  }
  uint64_t Good(const Order& order) {
    int none = -1;
    const Answer answer = Ask(order, -1, &none);
    EXPECT_SAME(answer.result, CUDA_SUCCESS);
    return answer.value;
  }

  static CUresult MapAnywhere(const Order& order, uint64_t* out) {
    CUdeviceptr address = 0;
    OK(cuMemAddressReserve(&address, order.bytes, 0, 0, 0));
    *out = address;
    return cuMemMap(address, order.bytes, 0, order.subject, 0);
  }

  static CUresult InAChild() {
    const pid_t child = fork();
    if (child == 0) {
      MemInfoOfChild();
      std::_Exit(0);
    }
    waitpid(child, nullptr, 0);
    return CUDA_SUCCESS;
  }
  static void MemInfoOfChild() {
    size_t free = 0;
    size_t total = 0;
    cuMemGetInfo_v2(&free, &total);
  }

  static CUresult Obey(const Order& order, int received, int* sent, uint64_t* value) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.requestedHandleTypes = kDescriptor;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr block = 0;
    CUresult result = CUDA_SUCCESS;
    switch (order.what) {
      case Do::kCreate:
        result = cuMemCreate(&handle, order.bytes, &prop, 0);
        *value = handle;
        return result;
      case Do::kExport:
        return cuMemExportToShareableHandle(sent, order.subject, kDescriptor, 0);
      case Do::kImport:
        result = cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(received)),
                                                kDescriptor);
        *value = handle;
        return result;
      case Do::kRelease:
        return cuMemRelease(order.subject);
      case Do::kMap:
        return MapAnywhere(order, value);
      case Do::kUnmap:
        return cuMemUnmap(order.subject, order.bytes);
      case Do::kAllocate:
        result = cuMemAlloc_v2(&block, order.bytes);
        *value = block;
        return result;
      case Do::kFree:
        return cuMemFree_v2(order.subject);
      case Do::kUsed:
        *value = MemInfo().used();
        return CUDA_SUCCESS;
      case Do::kTotal:
        *value = MemInfo().total;
        return CUDA_SUCCESS;
      case Do::kFork:
        return InAChild();
    }
    return CUDA_ERROR_UNKNOWN;
  }

  [[noreturn]] static void Live(int wire) {
    Order order{};
    int received = -1;
    bool begun = false;
    while (Hear(wire, &order, &received)) {
      if (!begun) Begin();
      begun = true;
      Answer answer{};
      int sent = -1;
      answer.result = static_cast<uint64_t>(Obey(order, received, &sent, &answer.value));
      Tell(wire, answer, sent);
      if (sent >= 0) close(sent);
      if (received >= 0) close(received);
    }
    std::_Exit(0);
  }

  int ends_[2] = {-1, -1};
  pid_t pid_ = -1;
};

void AllAgree(std::initializer_list<Peer*> peers) {
  for (Peer* const peer : peers) EXPECT_SAME(peer->Used(), simgpu_used_bytes(0));
}

SCENARIO(shared_counts_once) {
  Peer maker, user;
  const uint64_t made = maker.Create(100 * kMiB);
  const int fd = maker.Export(made);
  const uint64_t handle = user.Import(fd);
  close(fd);
  AllAgree({&maker, &user});
  const uint64_t address = user.Map(handle, 100 * kMiB);
  user.Map(handle, 40 * kMiB);
  AllAgree({&maker, &user});
  maker.Fill();
  user.Fill();
  user.Release(handle);
  user.Unmap(address, 100 * kMiB);
  maker.Release(made);  // the other mapping keeps it
  AllAgree({&maker, &user});
  user.Fill();
}

// Who has memory mapped pays when its maker is gone, by whatever way; and what nobody has is free at once.
SCENARIO(shared_maker_killed) {
  Peer maker, user;
  const int fd = maker.Export(maker.Create(100 * kMiB));
  const uint64_t handle = user.Import(fd);
  close(fd);
  const uint64_t address = user.Map(handle, 100 * kMiB);
  maker.Kill();
  user.Fill();
  user.Release(handle);
  user.Unmap(address, 100 * kMiB);
  user.Fill();
}

SCENARIO(shared_user_killed) {
  Peer maker, user;
  const uint64_t made = maker.Create(100 * kMiB);
  const int fd = maker.Export(made);
  user.Map(user.Import(fd), 100 * kMiB);
  close(fd);
  user.Kill();
  maker.Fill();
  maker.Release(made);
  maker.Fill();
}

// A handle without a mapping is as good as one.
SCENARIO(shared_maker_lets_go_first) {
  Peer maker, user;
  const uint64_t made = maker.Create(100 * kMiB);
  const int fd = maker.Export(made);
  const uint64_t handle = user.Import(fd);
  close(fd);
  maker.Release(made);
  AllAgree({&maker, &user});
  maker.Fill();
  const uint64_t one = user.Map(handle, 100 * kMiB);
  const uint64_t two = user.Map(handle, 60 * kMiB);
  AllAgree({&maker, &user});
  user.Fill();
  user.Unmap(one, 100 * kMiB);
  user.Release(handle);
  AllAgree({&maker, &user});
  user.Unmap(two, 60 * kMiB);
  AllAgree({&maker, &user});
  maker.Fill();
}

SCENARIO(shared_heirs_die) {
  Peer maker, first, second, third;
  const int fd = maker.Export(maker.Create(100 * kMiB));
  first.Map(first.Import(fd), 100 * kMiB);
  second.Import(fd);
  const uint64_t handle = third.Import(fd);
  close(fd);
  maker.Kill();
  first.Fill();  // which pays now
  first.Kill();
  second.Kill();  // before anybody looked
  third.Fill();
  third.Release(handle);
  third.Fill();
}

// The region of another container knows nothing of it: it counts there, too.
SCENARIO(shared_with_another_container) {
  const std::string elsewhere = std::string(std::getenv("GUEST_FOLDER")) + "/other.cache";
  Peer maker, user(elsewhere.c_str());
  const int fd = maker.Export(maker.Create(100 * kMiB));
  const uint64_t of_maker = maker.Used();
  const uint64_t before = user.Used();
  const uint64_t handle = user.Import(fd);
  const uint64_t address = user.Map(handle, 100 * kMiB);
  EXPECT_SAME(user.Used(), before + 100 * kMiB);
  EXPECT_SAME(maker.Used(), of_maker);
  // What it hands on is not its own.
  Peer third(elsewhere.c_str());
  const uint64_t both = third.Used();
  const int again = user.Export(handle);
  third.Map(third.Import(again), 100 * kMiB);
  EXPECT_SAME(third.Used(), both + 100 * kMiB);
  user.Unmap(address, 100 * kMiB);
  user.Release(handle);
  EXPECT_SAME(user.Used(), both);
  close(fd);
  close(again);
}

// Its owner, its signal and its locks are the program's.
SCENARIO(shared_descriptor_is_the_programs) {
  Peer maker, user;
  const int fd = maker.Export(maker.Create(100 * kMiB));
  EXPECT_SAME(fcntl(fd, F_GETOWN), 0);
  EXPECT_SAME(fcntl(fd, F_GETSIG), 0);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_len = 4096;
  EXPECT_SAME(fcntl(fd, F_OFD_SETLK, &lock), 0);
  EXPECT_SAME(fcntl(fd, F_SETOWN, getpid()), 0);
  EXPECT_SAME(fcntl(fd, F_SETSIG, SIGURG), 0);
  const int copy = dup(fd);
  close(fd);
  const uint64_t handle = user.Import(copy);
  const uint64_t address = user.Map(handle, 100 * kMiB);
  AllAgree({&maker, &user});
  EXPECT_SAME(fcntl(copy, F_GETOWN), getpid());
  EXPECT_SAME(fcntl(copy, F_GETSIG), SIGURG);
  user.Unmap(address, 100 * kMiB);
  user.Release(handle);
  AllAgree({&maker, &user});
  // Without its name nobody knows whose memory it is.
  lock.l_type = F_UNLCK;
  lock.l_len = 0;
  EXPECT_SAME(fcntl(copy, F_OFD_SETLK, &lock), 0);
  const uint64_t before = user.Used();
  user.Map(user.Import(copy), 100 * kMiB);
  EXPECT_SAME(user.Used(), before + 100 * kMiB);
  close(copy);
}

// A descriptor that its maker left behind is worth what the driver makes of it, here nothing.
SCENARIO(shared_by_nobody) {
  Peer maker, user;
  const uint64_t made = maker.Create(100 * kMiB);
  const int fd = maker.Export(made);
  maker.Release(made);
  user.CannotImport(fd);
  AllAgree({&maker, &user});
  const uint64_t again = maker.Create(100 * kMiB);
  const int other = maker.Export(again);
  maker.Kill();
  user.TryImport(other);  // the driver may not have noticed yet
  user.Fill();
  user.CannotImport(fd);
  user.Fill();
  close(fd);
  close(other);
}

// From hand to hand: each may go, and the last one pays.
SCENARIO(shared_handed_on) {
  Peer maker, second, third;
  const uint64_t made = maker.Create(100 * kMiB);
  const int fd = maker.Export(made);
  const uint64_t handle = second.Import(fd);
  close(fd);
  maker.Kill();
  const int again = second.Export(handle);
  const uint64_t last = third.Import(again);
  EXPECT_SAME(third.Import(again), last);
  close(again);
  third.Fill();
  second.Release(handle);
  AllAgree({&second, &third});
  third.Release(last);
  AllAgree({&second, &third});
  third.Release(last);
  AllAgree({&second, &third});
  second.Fill();
}

// What its maker imports again is still one piece, also when the first handle goes before the second.
SCENARIO(shared_with_itself) {
  Peer maker, user;
  const uint64_t made = maker.Create(100 * kMiB);
  const int fd = maker.Export(made);
  const uint64_t mapped = maker.Map(made, 50 * kMiB);
  const uint64_t same = maker.Import(fd);
  maker.Release(made);
  AllAgree({&maker, &user});
  const uint64_t handle = user.Import(fd);
  maker.Release(same);
  maker.Fork();
  AllAgree({&maker, &user});
  maker.Unmap(mapped, 50 * kMiB);
  AllAgree({&maker, &user});
  user.Fork();
  user.Release(handle);
  AllAgree({&maker, &user});
  maker.Fill();
  close(fd);
}

SCENARIO(shared_many) {
  constexpr int kMany = 300;
  Peer maker, user;
  for (int round = 0; round < 2; ++round) {
    std::vector<uint64_t> made;
    std::vector<uint64_t> handles;
    for (int i = 0; i < kMany; ++i) {
      made.push_back(maker.Create(2 * kMiB));
      for (int export_again = 0; export_again < 2; ++export_again) {
        const int fd = maker.Export(made.back());
        if (export_again == 1) handles.push_back(user.Import(fd));
        close(fd);
      }
      user.Map(handles.back(), 2 * kMiB);
    }
    AllAgree({&maker, &user});
    for (const uint64_t handle : made) maker.Release(handle);
    AllAgree({&maker, &user});
    user.Fill();
    if (round == 0) {
      // More than the container's table has room for: it is empty again after each.
      for (int i = 0; i < 3000; ++i) {
        const uint64_t handle = maker.Create(2 * kMiB);
        close(maker.Export(handle));
        maker.Release(handle);
      }
      AllAgree({&maker, &user});
    }
  }
}

}  // namespace
}  // namespace guest
