// SPDX-License-Identifier: Apache-2.0
// Memory that processes of one container share counts once, as long as anybody holds it, whoever goes first. Each
// process is a child that does what it is told; the scenario itself uses no GPU.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "test/preload/guest_kernels.h"
#include "test/preload/guest_peer.h"

namespace guest {
namespace {

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
  const std::string elsewhere = Path("other.cache");
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

SCENARIO(shared_array_of_another_container) {
  const std::string elsewhere = Path("other.cache");
  Peer maker, user(elsewhere.c_str());
  const int fd = maker.Export(maker.CreateTilePool(64 * kMiB));
  const uint64_t before = user.Used();
  const uint64_t handle = user.Import(fd);
  const uint64_t array = user.MapArray(handle, 64 * kMiB);
  user.Release(handle);
  EXPECT_SAME(user.Used(), before + 64 * kMiB);
  user.DestroyArray(array);
  EXPECT_SAME(user.Used(), before);
  close(fd);
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
  close(fd);
  maker.Release(same);
  maker.Fork();
  AllAgree({&maker, &user});
  maker.Unmap(mapped, 50 * kMiB);
  AllAgree({&maker, &user});
  user.Fork();
  user.Release(handle);
  AllAgree({&maker, &user});
  maker.Fill();
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
