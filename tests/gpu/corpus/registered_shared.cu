// Registered memory that is shared memory: a file in /dev/shm, a memfd, memory without a name.
// Kernels, copies and other processes see the same words; parts of pages; two processes that
// register the same file; a file that becomes shorter.

#include "check.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const size_t words = 1 << 20;
static const size_t page_words = 1024;

__global__ void add(uint32_t *data, size_t count, uint32_t value)
{
	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
		data[i] += value;
}

__global__ void wait_for(volatile int *flag, int value, int *answer)
{
	*answer = spin_until(flag, value) ? value : -1;
	__threadfence_system();
}

/* How a program has the file behind its memory: a name and no descriptor, a descriptor and no name,
 * neither. */
enum way { LINKED, MEMFD, NAMELESS };
static const char *const names[] = {"linked", "memfd", "nameless"};
static char path[64];

static uint32_t *map_shared(enum way way, size_t count, size_t from, int *ret_fd = nullptr)
{
	int fd = -1;
	off_t size = (off_t)((count + from) * 4);

	if (way == LINKED) {
		snprintf(path, sizeof(path), "/registered-shared-%d", (int)getpid());
		fd = shm_open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	} else if (way == MEMFD) {
		fd = memfd_create("registered", MFD_CLOEXEC);
	}
	EXPECT(way == NAMELESS || (fd >= 0 && ftruncate(fd, size) == 0));
	void *at = mmap(nullptr, count * 4, PROT_READ | PROT_WRITE, MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0),
		fd, way == NAMELESS ? 0 : (off_t)(from * 4));
	EXPECT(at != MAP_FAILED);
	if (way == LINKED)
		close(fd);
	if (ret_fd)
		*ret_fd = fd;
	return (uint32_t *)at;
}

static void unlink_file(enum way way)
{
	if (way == LINKED)
		EXPECT(shm_unlink(path) == 0);
}

static uint32_t *seen_by_device(uint32_t *at)
{
	uint32_t *seen;

	CHECK(cudaHostGetDevicePointer((void **)&seen, at, 0));
	return seen;
}

static void fill(uint32_t *at, size_t count)
{
	std::vector<uint32_t> values = random_words(count);

	memcpy(at, values.data(), count * 4);
}

static void say(const char *what, const uint32_t *at, size_t count)
{
	report(what, std::vector<uint32_t>(at, at + count));
}

/* Another process, without CUDA, changes a word in the middle. */
static void add_elsewhere(uint32_t *word)
{
	fflush(stdout);
	pid_t child = fork();

	EXPECT(child >= 0);
	if (child == 0) {
		*word += 7;
		_exit(0);
	}
	int status;
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

static void work_on(const char *what, uint32_t *at, size_t count)
{
	buffer<uint32_t> copy(count);

	fill(at, count);
	add<<<32, 256>>>(seen_by_device(at), count, 3);
	CHECK(cudaGetLastError());
	CHECK(cudaDeviceSynchronize());
	say(what, at, count);
	add_elsewhere(at + count / 2);
	CHECK(cudaMemcpyAsync(copy, at, count * 4, cudaMemcpyHostToDevice, 0));
	add<<<32, 256>>>(copy, count, 5);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpyAsync(at, copy, count * 4, cudaMemcpyDeviceToHost, 0));
	CHECK(cudaDeviceSynchronize());
	say(what, at, count);
}

/* A program without the right to open what its memory map names gets no pointer from the service
 * where there is neither name nor descriptor: it is not asked for here. */
static bool may_open_nameless()
{
	uint32_t *at = map_shared(NAMELESS, page_words, 0);
	char name[96];

	snprintf(name, sizeof(name), "/proc/self/map_files/%lx-%lx", (unsigned long)(uintptr_t)at,
		(unsigned long)(uintptr_t)(at + page_words));
	int fd = open(name, O_RDWR | O_CLOEXEC);
	munmap(at, page_words * 4);
	close(fd);
	return fd >= 0;
}

static void all_ways()
{
	for (enum way way : {LINKED, MEMFD, NAMELESS}) {
		if (way == NAMELESS && !may_open_nameless())
			continue;
		for (unsigned flags :
			{cudaHostRegisterDefault, cudaHostRegisterMapped | cudaHostRegisterPortable}) {
			uint32_t *at = map_shared(way, words, way == NAMELESS ? 0 : 3 * page_words);

			CHECK(cudaHostRegister(at, words * 4, flags));
			work_on(names[way], at, words);
			printf("again: %s\n", name_of(cudaHostRegister(at, words * 4, flags)));
			cudaGetLastError();
			CHECK(cudaHostUnregister(at));
			say("after", at, words);
			munmap(at, words * 4);
			unlink_file(way);
		}
	}
}

static void parts()
{
	uint32_t *at = map_shared(LINKED, words, 0), *one = at + 5 * page_words + 100;
	const size_t count = 3 * page_words + 17;

	CHECK(cudaHostRegister(one, count * 4, cudaHostRegisterMapped));
	work_on("part", one, count);
	CHECK(cudaHostUnregister(one));
	munmap(at, words * 4);
	unlink_file(LINKED);
}

/* In front of the words: the flags with which two processes take turns. */
static const size_t head = page_words;

static bool await_flag(uint32_t *at, uint32_t value)
{
	return wait_until([&] { return __atomic_load_n(at, __ATOMIC_ACQUIRE) == value; });
}

/* Each has the memory for itself; a kernel of each waits for what the other one's processor writes. */
static int take_turns(int fd, uint32_t own, const char *who)
{
	uint32_t *at =
		(uint32_t *)mmap(nullptr, (words + head) * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	EXPECT(at != MAP_FAILED);
	CHECK(cudaHostRegister(at, (words + head) * 4, cudaHostRegisterMapped));
	uint32_t *seen = seen_by_device(at);
	for (uint32_t round = own; round < 10; round += 2) {
		int *answer = (int *)at + 16 + own;

		wait_for<<<1, 1>>>((int *)seen, (int)round, (int *)seen + 16 + own);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		EXPECT(*answer == (int)round);
		add<<<32, 256>>>(seen + head, words, round + 1);
		CHECK(cudaGetLastError());
		CHECK(cudaDeviceSynchronize());
		__atomic_store_n(at, round + 1, __ATOMIC_RELEASE);
	}
	EXPECT(await_flag(at, 10));
	say(who, at + head, words);
	CHECK(cudaHostUnregister(at));
	munmap(at, (words + head) * 4);
	fflush(stdout);
	return 0;
}

static void two_processes()
{
	int fd = memfd_create("two", MFD_CLOEXEC), status;

	EXPECT(fd >= 0 && ftruncate(fd, (off_t)((words + head) * 4)) == 0);
	fflush(stdout);
	pid_t first = fork();
	EXPECT(first >= 0);
	if (first == 0)
		_exit(take_turns(fd, 0, "one of two"));
	pid_t second = fork();
	EXPECT(second >= 0);
	/* Its words are the same: the first one's line is enough, whichever comes first. */
	if (second == 0)
		_exit(freopen("/dev/null", "w", stdout) ? take_turns(fd, 1, "the other") : 1);
	EXPECT(waitpid(first, &status, 0) == first && status == 0);
	EXPECT(waitpid(second, &status, 0) == second && status == 0);
	close(fd);
}

/* The device has the pages that were pinned. */
static void shorter()
{
	int fd;
	uint32_t *at = map_shared(MEMFD, words, 0, &fd);

	CHECK(cudaHostRegister(at, words * 4, cudaHostRegisterMapped));
	uint32_t *seen = seen_by_device(at);
	buffer<uint32_t> copy(words);

	fill(at, words);
	EXPECT(ftruncate(fd, 0) == 0);
	add<<<32, 256>>>(seen, words, 11);
	printf("shorter: %s\n", name_of(cudaGetLastError()));
	printf("shorter: %s\n", name_of(cudaDeviceSynchronize()));
	/* A copy whose side is the device pointer. */
	add<<<32, 256>>>(copy, words, 1);
	CHECK(cudaDeviceSynchronize());
	printf("shorter: %s\n", name_of(cudaHostUnregister(at)));
	munmap(at, words * 4);
	close(fd);
	std::vector<uint32_t> ones = copy.read();
	report("others", ones);
}

int main()
{
	/* First those that fork, before this process uses CUDA. */
	two_processes();
	all_ways();
	parts();
	shorter();
	printf("done\n");
	return 0;
}
