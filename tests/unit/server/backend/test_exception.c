// The service's own handling of a kernel's exception, beside a kernel-mode driver that is played: a
// save area with records of warps, error states of multiprocessors, and the device's memory with
// code and descriptors of grids.

#include "server/backend/cuda/exception.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/backend/cuda/code.h"
#include "server/backend/cuda/debugger.h"
#include "server/backend/cuda/finding.h"
#include "server/backend/cuda/handler.h"
#include "tests/lib/fds.h"
#include "tests/lib/scarce.h"
#include "tests/lib/suite.h"

#define CLIENT	 0xc1d00001u
#define DEBUGGER 0x5c000089u
#define AREA	 0x5c00008au
#define DEVICE	 0x5c000085u

#define SMS	   132u
#define CODE	   UINT64_C(0x10000)
#define CODE_BYTES UINT64_C(0x180)
#define OTHER	   UINT64_C(0x20000)
#define TASKS	   UINT64_C(0x30000)
#define BUILTIN	   UINT64_C(0x9000000)
#define HANDLER	   UINT64_C(0x38000)
#define MEMORY_END 0x40000u

#define OURS   ((struct backend_module *)(uintptr_t)0x4711)
#define THEIRS ((struct backend_module *)(uintptr_t)0x4712)

static char story[512], path[64];
static struct backend_fault faults[BACKEND_FAULTS_MAX];
static uint32_t fault_count;
static uint8_t *area;
static uint8_t memory[MEMORY_END];
static struct debugger_state states[SMS];
static void (*at_resume)(void); /* once */
static bool stops, hides, goes_on;
static uint32_t preempts;   /* waits until a stop is done */
static uint32_t stays_away; /* resumes that leave warps where they are saved */

static void tell(const char *word)
{
	strcat(story, word);
	strcat(story, " ");
}

static void suspected(void *context)
{
	(void)context;
	tell("suspected");
}

static void stopped(void *context)
{
	(void)context;
	tell("stopped");
}

static void take(const struct backend_fault *found, uint32_t count)
{
	if (count)
		memcpy(faults, found, count * sizeof(*found));
	fault_count = count;
}

static void contained(void *context, const struct backend_fault *found, uint32_t count)
{
	(void)context;
	take(found, count);
	tell(count ? "contained" : "none");
}

static void uncontained(void *context, const struct backend_fault *found, uint32_t count)
{
	(void)context;
	take(found, count);
	tell("uncontained");
}

static const struct backend_watch watch = {
	.suspected = suspected, .stopped = stopped, .contained = contained, .uncontained = uncontained};

/* ---- the kernel-mode driver ---- */

struct states {
	uint32_t channel, count;
	struct debugger_state at[DEBUGGER_STATES_MAX];
	uint32_t fault, mmu[2], first;
};

static uint32_t read_states(struct states *wish)
{
	if (hides || wish->first + wish->count > SMS)
		return 0x1f;
	memcpy(wish->at, &states[wish->first], wish->count * sizeof(states[0]));
	return 0;
}

static uint32_t move(const struct control_read *wish, bool is_write)
{
	ck_assert_uint_eq(wish->memory, DEVICE);
	ck_assert_uint_le(wish->offset + wish->length, MEMORY_END);
	if (is_write)
		memcpy(memory + wish->offset, (void *)(uintptr_t)wish->buffer, wish->length);
	else
		memcpy((void *)(uintptr_t)wish->buffer, memory + wish->offset, wish->length);
	return 0;
}

/* The device had saved them to make room for another context. */
static void bring_back(void)
{
	for (uint32_t i = 0; i < WARPS_COUNT; i++)
		area[WARPS_HEAD_BYTES + (size_t)i * WARPS_RECORD_BYTES + 0x29c] = 0;
}

static uint32_t resume(void)
{
	void (*then)(void) = at_resume;

	tell("resume");
	if (stays_away)
		stays_away--;
	else
		bring_back();
	at_resume = NULL;
	if (then)
		then();
	return goes_on ? 0 : 0x40;
}

static uint32_t control(uint32_t command, void *parameters)
{
	switch (command) {
	case 0x83de0317:
		tell("stop");
		((uint32_t *)parameters)[0] = preempts != 0;
		return stops ? 0 : 0x40;
	case 0x83de0318:
		return resume();
	case 0x83de030c:
		return read_states(parameters);
	case 0x83de030f:
		memset(&states[((uint32_t *)parameters)[1]], 0, sizeof(states[0]));
		return 0;
	case 0x83de0310:
		tell("clear");
		memset(states, 0, sizeof(states));
		return ((uint32_t *)parameters)[1] == SMS ? 0 : 0x1f;
	case 0x83de0315:
	case 0x83de0316:
		return move(parameters, command == 0x83de0316);
	default:
		ck_abort_msg("control %x", command);
	}
}

/* As the exception's own thread uses it; and for a stop that is under way. */
int poll(struct pollfd *events, nfds_t count, int ms)
{
	const struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

	if (ms != 100)
		return ppoll(events, count, &limit, NULL);
	tell("wait");
	preempts--;
	return 0;
}

static int execute(int fd, unsigned long request, void *argument)
{
	struct control *asked = argument;

	(void)fd;
	if (_IOC_NR(request) == DRIVER_CONTROL)
		asked->status = control(asked->command, (void *)(uintptr_t)asked->parameters);
	else if (_IOC_SIZE(request) >= 16) /* an event, or the object of one: the last word but one */
		((uint32_t *)argument)[_IOC_SIZE(request) / 4 == 4 ? 3 : 10] = 0;
	return 0;
}

/* ---- what the driver asks for while it makes a context ---- */

static uint32_t client; /* who asks */

static void note_alloc(uint32_t class, uint32_t object, uint64_t size)
{
	uint64_t parameters[9] = {[8] = size};
	struct {
		uint32_t client, parent, object, class;
		uint64_t parameters, rights;
		uint32_t size, flags, status, pad;
	} alloc = {client, 0x5c000002, object, class, (uintptr_t)parameters, 0, sizeof(parameters), 0, 0, 0};

	debugger_note(9, _IOC(_IOC_READ | _IOC_WRITE, 'F', DRIVER_ALLOC, sizeof(alloc)), &alloc);
}

static void note_map(uint32_t object, uint64_t base, uint64_t length)
{
	struct {
		uint64_t base, length, offset;
		uint8_t devices[256][36];
		uint64_t count;
		int32_t fd;
		uint32_t client, memory, status;
	} map = {.base = base, .length = length, .count = 1, .client = client, .memory = object};

	debugger_note(7, 33, &map);
}

/* A descriptor of what stands for the device: never readable, so the thread of ours waits. */
static void note_event(void)
{
	uint32_t event[4] = {CLIENT, 0x5c000003, 15, 0};
	int fd;

	strcpy(path, "/tmp/frmps-exception-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(path));
	strcat(path, "/fifo");
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	debugger_note(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0xce, sizeof(event)), event);
	close(fd);
}

/* ---- the trap handler ---- */

#define LOOK	  UINT64_C(0x38100) /* reads whether the warp waits */
#define STORES	  UINT64_C(0x38200) /* writes the record */
#define RESTORE	  UINT64_C(0x38400)
#define ROOM	  UINT64_C(0x38580)
#define NEXT_ROOM UINT64_C(0x38700)

static void put_instruction(uint64_t at, uint64_t low, uint64_t high)
{
	memcpy(memory + at, &low, sizeof(low));
	memcpy(memory + at + 8, &high, sizeof(high));
}

/* As much of it as is looked at: opcodes, and the constants of the save area. */
static void put_handler(void)
{
	static const uint16_t restores[] = {0x983, 0x356, 0x356, 0x983, 0x352, 0x352, 0x356, 0x356, 0x983,
		0x202, 0x202, 0x804, 0x356, 0x983, 0x983, 0x983, 0x94f, 0x94d, 0x947};
	const uint64_t looks[14] = {0x919, 0x919, 0x819, 0x81a, 0x824,
		0x824 | (uint64_t)WARPS_RECORD_BYTES << 32, 0x802 | (uint64_t)(uintptr_t)area << 32,
		0x802 | (uint64_t)(uintptr_t)area >> 32 << 32, 0x810 | (uint64_t)WARPS_HEAD_BYTES << 32,
		0x210, 0x210, 0x210, 0x04007980 | UINT64_C(0x29d) << 32, 0xff0000720c};

	static const struct {
		uint64_t low, high;
		uint32_t offset;
	} stores[] = {{0x919, 0x0300, 0x248}, {0x919, 0x4000, 0x244}, {0x919, 0x4200, 0x264},
		{0x805, 0x15400, 0x268}, {0x919, 0x2500, 0x220}, {0x919, 0x2600, 0x224},
		{0x919, 0x2700, 0x228}, {0xb82 | UINT64_C(0xe00) << 32, 0, 0x238},
		{0xb82 | UINT64_C(0xc00) << 32, 0, 0x218}, {0x983 | UINT64_C(0xffffa800) << 32, 0, 0x288}};

	memset(memory + HANDLER, 0, MEMORY_END - HANDLER);
	for (uint32_t i = 0; i < sizeof(stores) / sizeof(stores[0]); i++) {
		put_instruction(STORES + 32 * i, stores[i].low | 0x5000, stores[i].high | 0x5000000);
		put_instruction(STORES + 32 * i + 16, 0x385 | (uint64_t)stores[i].offset << 32, 0);
	}
	for (uint32_t i = 0; i < 14; i++)
		put_instruction(LOOK + 16 * i, looks[i], i == 13 ? 0x003fda0003f05270 : 0x100 + i);
	for (uint32_t i = 0; i < sizeof(restores) / sizeof(restores[0]); i++)
		put_instruction(RESTORE + 16 * i, restores[i] | 0x55000, 0x200 + i);
}

static uint64_t low_of(uint64_t at)
{
	uint64_t low;

	memcpy(&low, memory + at, sizeof(low));
	return low;
}

static void set_up(void)
{
	area = mmap(NULL, WARPS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(area, MAP_FAILED);
	memset(memory, 0x11, sizeof(memory));
	stops = goes_on = true;
	stays_away = preempts = 0;
	hides = false;
	client = CLIENT;
	debugger_reset(execute);
	note_alloc(0x83de, DEBUGGER, 0);
	note_alloc(0x3e, AREA, (WARPS_BYTES + 4095) & ~4095u);
	note_map(AREA, (uintptr_t)area, WARPS_BYTES);
	note_alloc(0x40, DEVICE, MEMORY_END);
	note_map(DEVICE, 0, MEMORY_END);
	note_event();
	code_note(&(struct code){.module = OURS, .entry = CODE, .bytes = CODE_BYTES}, "culprit");
	code_note(&(struct code){.module = THEIRS, .entry = OTHER, .bytes = CODE_BYTES}, "other");
	for (uint64_t i = 0; i < 2; i++)
		memcpy(memory + TASKS + 0x1000 * i + 0x98, &(uint64_t){i ? OTHER : CODE}, 8);
	put_handler();
	ck_assert(exception_open(SMS));
}

static void tear_down(void)
{
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
}

/* ---- what is on the device ---- */

static void put(uint8_t *record, uint32_t at, uint64_t value, size_t bytes)
{
	memcpy(record + at, &value, bytes);
}

/* A warp that was stopped. @kernel: 0 the culprit's, 1 the other one's */
static void stop_warp(uint32_t sm, uint32_t slot, uint32_t kernel, uint32_t error, uint64_t at)
{
	uint8_t *record = area + WARPS_HEAD_BYTES + (size_t)(sm * WARPS_PER_SM + slot) * WARPS_RECORD_BYTES;

	memset(record, 0, WARPS_RECORD_BYTES);
	put(record, 0x218, 77, 8);
	put(record, 0x220, 5, 4);
	put(record, 0x238, TASKS + 0x1000 * kernel, 8);
	put(record, 0x248, 2u << 29 | sm << 20 | 3u << 16 | slot << 8, 4);
	put(record, 0x264, error, 4);
	put(record, 0x268, error & WARP_KIND ? at : 0, 8);
	put(record, 0x288, at + 16, 8);
	put(record, 0x29c, 0x101, 4);
}

static void give_reason(uint32_t sm, uint32_t slot, uint32_t reason)
{
	put(area + WARPS_HEAD_BYTES + (size_t)(sm * WARPS_PER_SM + slot) * WARPS_RECORD_BYTES, 0x244, reason,
		4);
}

/* One that was stopped for others. */
static void halt_warp(uint32_t sm, uint32_t slot, uint32_t kernel, uint64_t at)
{
	stop_warp(sm, slot, kernel, 0, at);
	give_reason(sm, slot, WARP_HALTED);
}

static bool is_stopped(uint32_t sm, uint32_t slot)
{
	return warps_is_stopped(area, sm * WARPS_PER_SM + slot);
}

/* Whether the handler lets it go on elsewhere. */
static bool is_led(uint32_t sm, uint32_t slot)
{
	return area[WARPS_HEAD_BYTES + (size_t)(sm * WARPS_PER_SM + slot) * WARPS_RECORD_BYTES + 0x29e] != 0;
}

static bool is_overwritten(uint64_t from, uint64_t bytes)
{
	static const uint64_t exits[2] = {0x794d, 0x000fea0003800000};
	bool all = true;

	for (uint64_t at = 0; at < bytes; at += 16)
		all &= !memcmp(memory + from + at, exits, 16);
	return all;
}

/* Whether it goes on in code that is overwritten. */
static bool is_to_end(uint32_t sm, uint32_t slot)
{
	uint64_t at;

	memcpy(&at, area + WARPS_HEAD_BYTES + (size_t)(sm * WARPS_PER_SM + slot) * WARPS_RECORD_BYTES + 0x288,
		sizeof(at));
	return at + 16 <= MEMORY_END && is_overwritten(at, 16);
}

static void handle(const char *expected)
{
	story[0] = '\0';
	exception_handle(&watch);
	ck_assert_str_eq(story, expected);
}

#define HANDLED "suspected stop stopped contained resume "

TEST(exception, the_kernel_that_faulted_is_named_and_its_grid_ends)
{
	stop_warp(16, 0, 0, 0xf, CODE + 0x40);
	stop_warp(16, 1, 1, 0, OTHER + 0x40);
	stop_warp(99, 63, 1, 0, OTHER + 0x50);
	states[16].warp_error = 0xf;
	states[16].pc = CODE + 0x40;
	handle(HANDLED);
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_eq(faults[0].module, OURS);
	ck_assert_str_eq(faults[0].kernel, "culprit");
	ck_assert_int_eq(faults[0].code, CUDA_ERROR_MISALIGNED_ADDRESS);
	ck_assert_uint_eq(faults[0].address, CODE + 0x40);
	ck_assert_uint_eq(faults[0].launch, 77);
	ck_assert(faults[0].has_block && faults[0].block[0] == 5);
	ck_assert(!is_stopped(16, 0) && !is_stopped(16, 1) && !is_stopped(99, 63));
	/* By itself. */
	ck_assert(is_to_end(16, 0) && !is_to_end(16, 1) && !is_to_end(99, 63));
	ck_assert(!is_led(16, 0) && !is_led(16, 1) && !is_led(99, 63));
	ck_assert(is_overwritten(CODE, CODE_BYTES));
	ck_assert_uint_eq(memory[CODE + CODE_BYTES], 0x11);
	ck_assert_uint_eq(memory[OTHER], 0x11);
	ck_assert_uint_eq(states[16].warp_error, 0);
}

/* What stands in a trap has no program counter of an error; an assertion stands in code of the
 * driver. */
TEST_LOOP(exception, traps_and_assertions_are_named_by_their_grid, 0, 2)
{
	stop_warp(3, 7, 0, _i ? WARP_ASSERT : WARP_TRAP, _i ? BUILTIN : CODE + 0x20);
	handle(HANDLED);
	ck_assert_ptr_eq(faults[0].module, OURS);
	ck_assert_int_eq(faults[0].code, _i ? CUDA_ERROR_ASSERT : CUDA_ERROR_LAUNCH_FAILED);
	ck_assert(is_overwritten(CODE, CODE_BYTES));
	ck_assert(!is_stopped(3, 7) && is_to_end(3, 7) && is_led(3, 7) == _i);
}

TEST(exception, an_access_without_a_mapping_is_named_by_the_error_state)
{
	states[124].warp_error = 0x8010017;
	states[124].pc = OTHER + 0x70;
	handle(HANDLED);
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_eq(faults[0].module, THEIRS);
	ck_assert_int_eq(faults[0].code, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(faults[0].address, OTHER + 0x70);
	ck_assert(!faults[0].has_block);
	ck_assert(is_overwritten(OTHER, CODE_BYTES));
	/* It is no evidence of the next one. */
	handle("suspected none ");
}

/* The warp that faulted is over, and another one has come into its slot, whose record has the error
 * of the one before. */
static void succeed_warp(uint32_t sm, uint32_t slot, uint32_t kernel, uint64_t error_at, uint64_t stands_at)
{
	stop_warp(sm, slot, kernel, 0x17, error_at);
	put(area + WARPS_HEAD_BYTES + (size_t)(sm * WARPS_PER_SM + slot) * WARPS_RECORD_BYTES, 0x288,
		stands_at, 8);
	states[sm].warp_error = 0x8000017 | slot << 16;
	states[sm].pc = error_at;
}

/* A kernel of another program, one of the driver's, and one that has done something already. */
TEST_LOOP(exception, who_has_the_slot_of_a_warp_that_faulted_is_not_blamed, 0, 3)
{
	const uint64_t stands_at[] = {OTHER, BUILTIN, OTHER + 0x30};

	if (_i == 1)
		memcpy(memory + TASKS + 0x1000 + 0x98, &stands_at[1], 8);
	succeed_warp(124, 3, 1, CODE + 0x70, stands_at[_i]);
	handle(HANDLED);
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_eq(faults[0].module, OURS);
	ck_assert_int_eq(faults[0].code, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(faults[0].address, CODE + 0x70);
	ck_assert(!faults[0].has_block);
	ck_assert(!is_stopped(124, 3) && !is_to_end(124, 3) && !is_led(124, 3));
	ck_assert(is_overwritten(CODE, CODE_BYTES));
	ck_assert_uint_eq(memory[OTHER], 0x11);
}

TEST(exception, who_has_the_slot_is_not_blamed_for_code_that_nobody_knows)
{
	succeed_warp(124, 3, 1, BUILTIN, OTHER);
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_null(faults[0].module);
	ck_assert(!is_to_end(124, 3));
	ck_assert_uint_eq(memory[OTHER], 0x11);
}

/* It has faulted itself, at its first instruction. */
TEST(exception, a_first_instruction_can_fault)
{
	succeed_warp(124, 3, 1, OTHER, OTHER);
	handle(HANDLED);
	ck_assert_ptr_eq(faults[0].module, THEIRS);
	ck_assert(is_to_end(124, 3));
}

/* In nobody's code, or in another program's. */
TEST_LOOP(exception, who_has_left_the_code_ends_there, 0, 2)
{
	stop_warp(0, 1, 0, 0x9, _i ? OTHER + 0x20 : UINT64_C(0xcf05237a1100));
	stop_warp(0, 2, 1, 0, OTHER);
	handle(HANDLED);
	ck_assert_ptr_eq(faults[0].module, OURS);
	ck_assert_int_eq(faults[0].code, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert(!is_stopped(0, 1) && is_to_end(0, 1));
	ck_assert(!is_stopped(0, 2) && !is_to_end(0, 2));
	ck_assert_uint_eq(memory[OTHER], 0x11);
}

/* Warps of its grid that have not failed yet: in the driver's code of assert() they would, one
 * after the other. */
TEST(exception, all_warps_of_a_grid_end_with_the_one_that_faulted)
{
	stop_warp(3, 7, 0, WARP_ASSERT, BUILTIN);
	for (uint32_t sm = 0; sm < SMS; sm++) {
		halt_warp(sm, 20, 0, BUILTIN - 0x40);
		halt_warp(sm, 21, 1, BUILTIN - 0x40);
	}
	handle(HANDLED);
	for (uint32_t sm = 0; sm < SMS; sm++)
		ck_assert(is_to_end(sm, 20) && !is_to_end(sm, 21));
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

/* All programs share the device's heap. Who stands in its code without an error of his own may hold
 * a lock of it. */
TEST(exception, nobody_ends_in_the_heap_of_all)
{
	code_forget(OURS);
	code_note(
		&(struct code){.module = OURS, .entry = CODE, .bytes = CODE_BYTES, .calls = true}, "culprit");
	stop_warp(3, 7, 0, 0xe, CODE + 0x20);
	halt_warp(3, 8, 0, BUILTIN);
	halt_warp(3, 9, 0, CODE + 0x40);
	stop_warp(3, 10, 0, WARP_ASSERT, BUILTIN);
	stop_warp(3, 11, 0, 0x9, UINT64_C(0xcf05237a1100));
	halt_warp(3, 12, 0, OTHER + 0x20); /* no driver's code */
	handle(HANDLED);
	ck_assert(!is_to_end(3, 8) && !is_stopped(3, 8));
	ck_assert(is_to_end(3, 7) && is_to_end(3, 9) && is_to_end(3, 10) && is_to_end(3, 11));
	ck_assert(is_to_end(3, 12));
	ck_assert(is_overwritten(CODE, CODE_BYTES));
}

/* A kernel of the driver's own, which copies or sets: nothing of its grid need be known. */
TEST(exception, bystanders_of_the_driver_go_on)
{
	stop_warp(3, 7, 0, WARP_TRAP, CODE);
	halt_warp(3, 8, 1, BUILTIN);
	put(area + WARPS_HEAD_BYTES + (size_t)(3 * WARPS_PER_SM + 8) * WARPS_RECORD_BYTES, 0x238, BUILTIN, 8);
	handle(HANDLED);
	ck_assert_uint_eq(fault_count, 1);
	ck_assert(!is_stopped(3, 8) && !is_to_end(3, 8) && is_to_end(3, 7));
}

/* The place of a warp that was led away is another one's. */
TEST(exception, whoever_is_stopped_in_its_place_goes_on)
{
	stop_warp(3, 7, 0, WARP_ASSERT, BUILTIN);
	handle(HANDLED);
	ck_assert(is_led(3, 7));
	halt_warp(3, 7, 1, OTHER);
	/* Nobody has made it 0 meanwhile. */
	put(area + WARPS_HEAD_BYTES + (size_t)(3 * WARPS_PER_SM + 7) * WARPS_RECORD_BYTES, 0x29c, 0x10101, 4);
	stop_warp(4, 0, 0, WARP_TRAP, CODE);
	handle(HANDLED);
	ck_assert(!is_stopped(3, 7) && !is_to_end(3, 7) && !is_led(3, 7) && is_to_end(4, 0));
}

/* More grids than are remembered are read once more. */
TEST(exception, a_warp_of_each_of_many_grids_is_told_from_the_others)
{
	for (uint32_t i = 0; i < 256; i++) {
		memcpy(memory + TASKS + 0x10 * i + 0x98, &(uint64_t){i % 2 ? OTHER : CODE}, 8);
		halt_warp(i % SMS, i / SMS, 0, BUILTIN);
		put(area + WARPS_HEAD_BYTES + (size_t)(i % SMS * WARPS_PER_SM + i / SMS) * WARPS_RECORD_BYTES,
			0x238, TASKS + 0x10 * i, 8);
	}
	stop_warp(100, 60, 0, WARP_TRAP, CODE);
	handle(HANDLED);
	for (uint32_t i = 0; i < 256; i++)
		ck_assert(is_to_end(i % SMS, i / SMS) == !(i % 2));
}

static void expect_instruction(uint64_t at, uint64_t low, uint64_t high)
{
	ck_assert_uint_eq(low_of(at), low);
	ck_assert_uint_eq(low_of(at + 8), high);
}

/* Once a kernel has run, multiprocessors keep some of the handler. */
TEST(exception, the_handler_is_changed_as_the_context_is_made)
{
	uint64_t first = 0x983 | 0x55000;
	uint8_t before[sizeof(memory) - HANDLER];

	/* There and back: the distances count in words, from the instruction behind. */
	expect_instruction(RESTORE, 0x100007947 | (ROOM - RESTORE - 16) / 4 << 16, 0x003ff20003800000);
	expect_instruction(ROOM, low_of(LOOK), low_of(LOOK + 8));
	expect_instruction(ROOM + 16 * 12, 0x04007980 | UINT64_C(0x29e) << 32, 0x11410c);
	expect_instruction(ROOM + 16 * 13, low_of(LOOK + 16 * 13), 0x003fda0003f05270);
	expect_instruction(ROOM + 16 * 14, 0x04020980 | UINT64_C(0x288) << 32, 0x114b0c);
	expect_instruction(ROOM + 16 * 15, 0x04000385 | UINT64_C(0x29e) << 32, 0x03f3e400005141ff);
	expect_instruction(ROOM + 16 * 16, UINT64_C(0xffffa802ff000387), 0x03f3e40000100a00);
	expect_instruction(ROOM + 16 * 17, first, 0x200);
	expect_instruction(ROOM + 16 * 18, UINT64_C(0xfffffffd00587947), 0x003ff2000383ffff);
	ck_assert_uint_eq(low_of(RESTORE + 16), 0x356 | 0x55000);
	ck_assert_uint_eq(low_of(ROOM + 16 * 19), 0);
	/* It stays. */
	memcpy(before, memory + HANDLER, sizeof(before));
	stop_warp(3, 7, 0, WARP_TRAP, CODE);
	handle(HANDLED);
	ck_assert_mem_eq(memory + HANDLER, before, sizeof(before));
}

/* Who believed that it still knows would let warps go on that are to end; and it may not be changed
 * any more. */
TEST_LOOP(exception, a_handler_that_the_driver_has_put_back_is_left_alone, 0, 2)
{
	put_handler();
	if (_i)
		put_instruction(RESTORE, 0x983 | 0x66000, 0);
	stop_warp(3, 7, 0, WARP_TRAP, CODE);
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(low_of(RESTORE), 0x983 | (_i ? 0x66000 : 0x55000));
	ck_assert_uint_eq(low_of(ROOM), 0);
	ck_assert_uint_eq(memory[CODE], 0x11);
}

/* The driver loads code when somebody needs it. */
TEST(exception, code_that_has_come_to_where_the_handler_jumps_is_left_alone)
{
	put_instruction(ROOM + 16 * 16, 0x202 | 0x77000, 0);
	stop_warp(3, 8, 0, WARP_TRAP, CODE);
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(low_of(ROOM + 16 * 16), 0x202 | 0x77000);
	ck_assert_uint_eq(low_of(RESTORE), 0x983 | 0x55000);
	ck_assert(!is_stopped(3, 8) && !is_to_end(3, 8));
}

/* A field of a record that is elsewhere, or of something else. */
TEST_LOOP(exception, where_records_have_another_form_exceptions_are_the_drivers, 0, 2 * 10)
{
	uint64_t at = STORES + 32 * (uint64_t)(_i / 2);

	put_handler();
	put_instruction(
		at + (_i % 2 ? 16 : 0), _i % 2 ? 0x385 | UINT64_C(0x298) << 32 : 0x919, _i % 2 ? 0 : 0x4400);
	ck_assert(!exception_open(SMS));
}

/* An H200's has other code of the driver's right behind it. */
TEST_LOOP(exception, the_handler_jumps_to_the_nearest_gap_that_is_large_enough, 0, 2)
{
	put_handler();
	put_instruction(ROOM + 16 * (uint64_t)(_i ? 18 : 0), 0x202 | 0x77000, 0);
	put_instruction(NEXT_ROOM - 16, 0x202 | 0x77000, 0);
	ck_assert(handler_teach(area));
	ck_assert(handler_is_taught());
	ck_assert_uint_eq(low_of(ROOM + 16), 0);
	ck_assert_uint_ne(low_of(NEXT_ROOM), 0);
	ck_assert_uint_ne(low_of(NEXT_ROOM + 16 * 18), 0);
	ck_assert_uint_eq(low_of(NEXT_ROOM + 16 * 19), 0);
}

TEST(exception, without_room_behind_the_handler_exceptions_are_the_drivers)
{
	put_handler();
	for (uint64_t at = ROOM + 16 * 18; at < MEMORY_END; at += 16 * 19)
		put_instruction(at, 0x202 | 0x77000, 0);
	ck_assert(!exception_open(SMS));
	ck_assert_uint_eq(low_of(RESTORE), 0x983 | 0x55000);
}

/* What the handler must be: one, with records of that length at that place, of which it reads that
 * byte. */
TEST_LOOP(exception, without_a_handler_of_the_known_form_exceptions_are_the_drivers, 0, 8)
{
	static const struct {
		uint64_t at, low, high;
	} other[] = {{RESTORE + 16 * 4, 0x353, 0}, {LOOK + 16 * 3, 0x819, 0},
		{LOOK + 16 * 5, 0x824 | UINT64_C(0x2b0) << 32, 0}, {LOOK + 16 * 6, 0x802, 0},
		{LOOK + 16 * 7, 0x802, 0}, {LOOK + 16 * 8, 0x810 | UINT64_C(0x20) << 32, 0},
		{LOOK + 16 * 12, 0x04007980 | UINT64_C(0x29c) << 32, 0}, {LOOK + 16 * 13, 0xff0000720c, 0}};

	put_handler();
	put_instruction(other[_i].at, other[_i].low, other[_i].high);
	ck_assert(!exception_open(SMS));
	put_handler();
	memcpy(memory + RESTORE + 0x800, memory + RESTORE, 0x130);
	ck_assert(!handler_teach(area));
}

TEST_LOOP(exception, a_kernel_that_nobody_knows_is_not_contained, 0, 3)
{
	if (_i == 0)
		code_forget(OURS);
	stop_warp(1, 0, _i == 1 ? 9 : 0, WARP_TRAP, CODE);
	if (_i == 2)
		put(area + WARPS_HEAD_BYTES + 64 * WARPS_RECORD_BYTES, 0x248, 2u << 20,
			4); /* of another place */
	stop_warp(1, 1, 1, 0, OTHER);
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_null(faults[0].module);
	ck_assert(!is_stopped(1, 1));
	ck_assert_uint_eq(memory[CODE], 0x11);
}

/* That one has a name acquits nobody of the other. */
TEST(exception, what_nobody_knows_beside_a_kernel_with_a_name_is_told)
{
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	stop_warp(1, 1, 9, WARP_TRAP, OTHER);
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(fault_count, 2);
	ck_assert_ptr_eq(faults[0].module, OURS);
	ck_assert_ptr_null(faults[1].module);
}

/* What is behind it may be anybody's, whatever else is known. */
TEST_LOOP(exception, states_that_cannot_be_read_are_not_contained, 0, 2)
{
	hides = true;
	if (_i)
		stop_warp(1, 0, 0, WARP_TRAP, CODE);
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(fault_count, 1 + (uint32_t)_i);
	ck_assert_ptr_null(faults[_i].module);
}

TEST(exception, a_state_in_nobodys_code_is_not_contained)
{
	states[0].warp_error = 0x17;
	states[0].pc = CODE + CODE_BYTES;
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_null(faults[0].module);
}

TEST(exception, a_kernel_whose_length_is_not_known_is_not_contained)
{
	code_forget(OURS);
	code_note(&(struct code){.module = OURS, .entry = CODE, .bytes = 0}, "culprit");
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(memory[CODE], 0x11);
}

TEST(exception, kernels_that_fault_at_once_are_all_named)
{
	for (uint32_t sm = 0; sm < SMS; sm++)
		for (uint32_t slot = 0; slot < WARPS_PER_SM; slot++)
			stop_warp(sm, slot, slot % 2, 0xe, slot % 2 ? OTHER : CODE);
	handle(HANDLED);
	ck_assert_uint_eq(fault_count, 2);
	ck_assert_ptr_eq(faults[0].module, OURS);
	ck_assert_ptr_eq(faults[1].module, THEIRS);
	ck_assert(is_overwritten(CODE, CODE_BYTES) && is_overwritten(OTHER, CODE_BYTES));
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

static void fault_again(void)
{
	stop_warp(8, 0, 1, WARP_TRAP, OTHER);
}

TEST(exception, what_faults_as_soon_as_the_device_goes_on_is_handled_as_well)
{
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	at_resume = fault_again;
	handle(HANDLED HANDLED);
	ck_assert_ptr_eq(faults[0].module, THEIRS);
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

static void stop_again(void)
{
	stop_warp(1, 1, 1, 0, OTHER);
	give_reason(1, 1, WARP_HELD);
}

/* Warps that are stopped once more are released once more, and nothing has faulted. */
TEST(exception, what_is_only_held_is_released)
{
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	give_reason(1, 0, 0x400);
	at_resume = stop_again;
	handle(HANDLED "suspected stop stopped none resume ");
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

/* The warp itself, which has not gone where it was sent: its record has its old place again, and no
 * error. */
static void hold_where_it_was(void)
{
	halt_warp(1, 0, 0, BUILTIN);
	give_reason(1, 0, WARP_HELD);
}

static void hold_in_other_code(void)
{
	hold_where_it_was();
	memset(memory + CODE, 0x11, CODE_BYTES);
}

TEST(exception, who_is_held_before_it_was_led_is_led_again)
{
	stop_warp(1, 0, 0, WARP_ASSERT, BUILTIN);
	at_resume = hold_where_it_was;
	handle(HANDLED "suspected stop stopped none resume ");
	ck_assert(!is_stopped(1, 0) && is_led(1, 0) && is_to_end(1, 0));
	/* That fault is over. */
	hold_where_it_was();
	handle("suspected stop stopped none resume ");
	ck_assert(!is_stopped(1, 0) && !is_led(1, 0));
}

/* Led there it would run a kernel of somebody else's from its beginning. */
TEST(exception, nobody_is_led_to_code_that_was_loaded_since)
{
	stop_warp(1, 0, 0, WARP_ASSERT, BUILTIN);
	at_resume = hold_in_other_code;
	handle(HANDLED "suspected stop stopped none resume ");
	ck_assert(!is_stopped(1, 0) && !is_led(1, 0));
}

/* Another context was resumed at the same time. */
TEST(exception, warps_that_stay_away_are_resumed_once_more)
{
	stays_away = 1;
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	handle(HANDLED "resume ");
	ck_assert(!warps_is_away(area, WARPS_PER_SM));
}

TEST(exception, a_device_whose_warps_do_not_come_back_does_not_go_on)
{
	stays_away = UINT32_MAX;
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	handle(HANDLED "resume resume resume uncontained ");
	ck_assert_uint_eq(fault_count, 0);
}

static void stop_for_ever(void)
{
	stop_again();
	at_resume = stop_for_ever;
	story[0] = '\0';
}

static void look(const char *expected)
{
	story[0] = '\0';
	exception_look(&watch);
	ck_assert_str_eq(story, expected);
}

static void look_often(void)
{
	for (unsigned i = 0; i < 7; i++)
		look("");
}

/* Before that a stop may be under way, or the announcement. */
TEST(exception, a_fault_that_is_not_announced_is_found_at_the_eighth_look)
{
	look_often();
	look("");
	stop_warp(16, 0, 0, 0xf, CODE + 0x40);
	look_often();
	look(HANDLED);
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_eq(faults[0].module, OURS);
	stop_warp(16, 0, 0, 0xf, OTHER + 0x40);
	look_often();
	handle(HANDLED);
	/* Looks before an announcement say nothing of the next fault. */
	stop_warp(16, 0, 0, 0xf, OTHER + 0x40);
	look_often();
	look(HANDLED);
}

TEST(exception, who_is_given_up_is_not_looked_at)
{
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	at_resume = stop_for_ever;
	exception_handle(&watch);
	look_often();
	look("");
}

static void mark_as_saved(uint32_t sm, uint32_t slot)
{
	area[WARPS_HEAD_BYTES + (size_t)(sm * WARPS_PER_SM + slot) * WARPS_RECORD_BYTES + 0x29c] = 1;
}

static void leave_a_mark(void)
{
	mark_as_saved(1, 1);
}

/* One of those that come back is over and stays marked, another one has been for long. */
TEST(exception, marks_of_warps_that_are_over_are_not_waited_for)
{
	mark_as_saved(2, 0);
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	stop_warp(1, 1, 0, WARP_TRAP, CODE);
	at_resume = leave_a_mark;
	handle(HANDLED);
	mark_as_saved(2, 0);
	states[3].warp_error = 0x17;
	states[3].pc = CODE + 0x40;
	handle(HANDLED);
}

/* Those are handled first. */
static void stop_again_and_away(void)
{
	stays_away = 1;
	stop_again();
}

TEST(exception, warps_that_are_stopped_again_are_not_waited_for)
{
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	at_resume = stop_again_and_away;
	handle(HANDLED "suspected stop stopped none resume resume ");
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

/* One control for all multiprocessors is cheaper than one for each of many. */
TEST(exception, many_error_states_are_cleared_at_once)
{
	for (uint32_t sm = 0; sm < SMS; sm++) {
		states[sm].warp_error = 0x17;
		states[sm].pc = CODE + 0x40;
	}
	handle("suspected stop stopped contained clear resume ");
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_eq(faults[0].module, OURS);
	handle("suspected none ");
}

/* A multiprocessor that had an exception, of which no warp shows whose it was. */
TEST(exception, an_exception_without_a_culprit_is_not_contained)
{
	stop_warp(1, 0, 1, 0, OTHER);
	give_reason(1, 0, WARP_HALTED | 0x200);
	handle("suspected stop stopped uncontained resume ");
	ck_assert_uint_eq(fault_count, 0);
}

TEST(exception, nothing_is_stopped_without_evidence)
{
	handle("suspected none ");
}

/* It is not asked again before it can be done. */
TEST(exception, a_stop_that_preempts_is_waited_for)
{
	preempts = 2;
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	handle("suspected stop wait stop wait stop stopped contained resume ");
}

TEST(exception, one_that_preempts_for_ever_is_not_contained)
{
	preempts = UINT32_MAX;
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	exception_handle(&watch);
	ck_assert_ptr_nonnull(strstr(story, "wait stop stopped resume uncontained "));
}

TEST(exception, a_device_that_does_not_stop_is_not_contained)
{
	stops = false;
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	handle("suspected stop stopped resume uncontained ");
	ck_assert_uint_eq(fault_count, 0);
}

/* Its culprit is named, and everybody else would wait for ever. */
TEST(exception, a_device_that_does_not_go_on_is_not_contained)
{
	goes_on = false;
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	handle("suspected stop stopped contained resume uncontained ");
}

TEST(exception, warps_that_nobody_can_release_are_not_contained)
{
	stop_warp(1, 0, 0, WARP_TRAP, CODE);
	at_resume = stop_for_ever;
	handle("uncontained ");
}

/*
 * Kernels that do not end
 */

static char ended[BACKEND_KERNEL_BYTES];

static struct {
	bool waits, ends;
} question;

/* Before the stop another module may have that name. */
static struct backend_module **list_ours(void *context, uint32_t *ret_count)
{
	struct backend_module **modules = malloc(sizeof(*modules));

	ck_assert_ptr_eq(context, &question);
	ck_assert_ptr_nonnull(modules);
	ck_assert(!strncmp(story, "stop ", 5) && !strstr(story, "resume"));
	modules[0] = OURS;
	*ret_count = 1;
	return modules;
}

static const struct backend_ending ours = {.list = list_ours, .context = &question};

static void end_ours(const char *expected)
{
	atomic_store(&backend_watch, &watch);
	story[0] = '\0';
	ck_assert_int_eq(exception_end(&ours, ended), CUDA_SUCCESS);
	ck_assert_str_eq(story, expected);
}

#define THIRD UINT64_C(0x28000)

TEST(exception, all_kernels_of_a_module_that_run_are_ended_and_no_others)
{
	code_note(&(struct code){.module = OURS, .entry = THIRD, .bytes = CODE_BYTES}, "second");
	code_note(&(struct code){.module = OURS, .entry = 0x2a000, .bytes = CODE_BYTES}, "idle");
	memcpy(memory + TASKS + 0x2000 + 0x98, &(uint64_t){THIRD}, 8);
	for (uint32_t slot = 0; slot < WARPS_PER_SM; slot++) {
		halt_warp(0, slot, 0, CODE + 0x40);
		halt_warp(1, slot, slot % 2, slot % 2 ? OTHER : BUILTIN);
		halt_warp(2, slot, slot % 3, 0);
	}
	end_ours("stop resume ");
	ck_assert(is_overwritten(CODE, CODE_BYTES) && is_overwritten(THIRD, CODE_BYTES));
	ck_assert_uint_eq(memory[CODE + CODE_BYTES], 0x11);
	ck_assert_uint_eq(memory[OTHER], 0x11);
	ck_assert_uint_eq(memory[0x2a000], 0x11);
	for (uint32_t slot = 0; slot < WARPS_PER_SM; slot++)
		ck_assert(is_to_end(0, slot) && is_to_end(1, slot) == !(slot % 2) &&
			  is_to_end(2, slot) == (slot % 3 != 1));
	ck_assert_str_eq(ended, "culprit");
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

TEST(exception, a_fault_that_is_found_meanwhile_is_handled)
{
	halt_warp(0, 0, 0, CODE + 0x40);
	stop_warp(16, 1, 1, 0xf, OTHER + 0x40);
	states[16].warp_error = 0xf;
	states[16].pc = OTHER + 0x40;
	end_ours("stop suspected stopped contained resume ");
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_eq(faults[0].module, THEIRS);
	ck_assert(is_overwritten(CODE, CODE_BYTES) && is_overwritten(OTHER, CODE_BYTES));
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
	/* Its event comes as well, and finds nothing. */
	handle("suspected none ");
}

TEST(exception, a_fault_that_nobody_can_be_named_for_is_not_hidden)
{
	halt_warp(0, 0, 0, CODE + 0x40);
	states[3].warp_error = 0x17;
	states[3].pc = BUILTIN;
	end_ours("stop suspected stopped uncontained resume ");
	ck_assert(is_overwritten(CODE, CODE_BYTES));
}

TEST(exception, kernels_that_nobody_knows_go_on)
{
	code_forget(OURS);
	halt_warp(0, 0, 0, CODE + 0x40);
	end_ours("stop resume ");
	ck_assert_str_eq(ended, "");
	ck_assert_uint_eq(memory[CODE], 0x11);
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

TEST(exception, what_is_held_once_more_is_released_once_more)
{
	halt_warp(0, 0, 0, CODE + 0x40);
	at_resume = stop_again;
	end_ours("stop resume suspected stop stopped none resume ");
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

/* In a function without end it would stay for ever. */
TEST(exception, who_is_to_end_and_is_held_once_more_ends)
{
	halt_warp(1, 0, 0, BUILTIN);
	at_resume = hold_where_it_was;
	end_ours("stop resume suspected stop stopped none resume ");
	ck_assert(!is_stopped(1, 0) && is_led(1, 0) && is_to_end(1, 0));
}

static bool may_end(void *context, bool waits)
{
	ck_assert_ptr_eq(context, &question);
	/* Nobody goes on before it is answered. */
	tell("asked");
	question.waits = waits;
	return question.ends;
}

static void ask_for_ours(bool ends, const char *expected)
{
	const struct backend_ending asked = {.list = list_ours, .may_end = may_end, .context = &question};

	atomic_store(&backend_watch, &watch);
	story[0] = '\0';
	question.ends = ends;
	ck_assert_int_eq(exception_end(&asked, ended), CUDA_SUCCESS);
	ck_assert_str_eq(story, expected);
	ck_assert_uint_eq(warps_next(area, 0), WARPS_COUNT);
}

static bool is_waiting(const char *expected)
{
	ask_for_ours(false, expected);
	ck_assert(!is_overwritten(CODE, CODE_BYTES));
	ck_assert_str_eq(ended, "");
	return question.waits;
}

TEST(exception, kernels_are_ended_in_the_stop_in_which_it_is_asked)
{
	halt_warp(0, 0, 0, CODE + 0x40);
	halt_warp(1, 0, 1, OTHER + 0x40);
	ask_for_ours(true, "stop asked resume ");
	ck_assert(!question.waits);
	ck_assert(is_overwritten(CODE, CODE_BYTES) && !is_overwritten(OTHER, CODE_BYTES));
	ck_assert_str_eq(ended, "culprit");
}

TEST(exception, a_program_waits_where_only_others_have_kernels_on_the_device)
{
	ck_assert(!is_waiting("stop asked resume "));
	halt_warp(1, 0, 1, OTHER + 0x40);
	ck_assert(is_waiting("stop asked resume "));
	halt_warp(0, 0, 0, CODE + 0x40);
	ck_assert(!is_waiting("stop asked resume "));
	halt_warp(1, 0, 1, OTHER + 0x40);
	halt_warp(0, 0, 0, BUILTIN);
	ck_assert(!is_waiting("stop asked resume "));
	/* A kernel that nobody knows may be its own. */
	code_forget(THEIRS);
	halt_warp(1, 0, 1, OTHER + 0x40);
	ck_assert(!is_waiting("stop asked resume "));
}

TEST(exception, a_fault_that_others_wait_for_is_handled)
{
	stop_warp(16, 1, 1, 0xf, OTHER + 0x40);
	states[16].warp_error = 0xf;
	states[16].pc = OTHER + 0x40;
	ck_assert(is_waiting("stop suspected stopped contained asked resume "));
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_eq(faults[0].module, THEIRS);
	ck_assert(is_overwritten(OTHER, CODE_BYTES));
}

/* A write that found no mapping shows in a state alone, and behind the resume its kernel looks
 * finished before the event comes. */
TEST(exception, a_stop_without_states_to_end_kernels_may_hide_a_fault)
{
	hides = true;
	halt_warp(0, 0, 0, CODE + 0x40);
	ck_assert(!is_waiting("stop suspected stopped uncontained asked resume "));
	ck_assert_uint_eq(fault_count, 1);
	ck_assert_ptr_null(faults[0].module);
}

TEST(exception, kernels_can_only_be_ended_while_somebody_watches)
{
	halt_warp(0, 0, 0, CODE);
	atomic_store(&backend_watch, NULL);
	story[0] = '\0';
	ck_assert_int_eq(exception_end(NULL, ended), CUDA_ERROR_NOT_SUPPORTED);
	ck_assert_int_eq(exception_end(&ours, ended), CUDA_ERROR_NOT_SUPPORTED);
	atomic_store(&backend_watch, &watch);
	ck_assert_int_eq(exception_end(NULL, ended), CUDA_SUCCESS);
	ck_assert_str_eq(story, "");
	stops = false;
	ck_assert_int_eq(exception_end(&ours, ended), CUDA_ERROR_UNKNOWN);
	ck_assert_str_eq(story, "stop resume ");
	ck_assert_uint_eq(memory[CODE], 0x11);
}

TEST(exception, memory_that_is_freed_is_not_written)
{
	uint32_t freed[4] = {CLIENT, 0x5c000002, DEVICE, 0};
	uint64_t base = 0;
	uint8_t byte;

	ck_assert(debugger_has(CODE, CODE_BYTES));
	ck_assert(!debugger_has(MEMORY_END - 1, 2));
	ck_assert(!debugger_has(UINT64_MAX, 2));
	debugger_note(7, 34, &base);
	ck_assert(!debugger_has(CODE, 1));
	ck_assert(!debugger_read(CODE, &byte, 1));
	debugger_note(9, _IOC(_IOC_READ | _IOC_WRITE, 'F', DRIVER_FREE, sizeof(freed)), freed);
	note_map(DEVICE, 0, MEMORY_END);
	ck_assert(!debugger_has(CODE, 1));
}

/* Its objects may have the numbers of ours. */
TEST(exception, memory_of_another_client_is_left_alone)
{
	uint32_t freed[4] = {CLIENT + 1, 0x5c000002, DEVICE, 0};
	uint64_t theirs = 0x80000, word = 0;

	client = CLIENT + 1;
	note_alloc(0x40, DEVICE, MEMORY_END);
	note_map(DEVICE, theirs, MEMORY_END);
	ck_assert(!debugger_has(theirs + CODE, CODE_BYTES));
	ck_assert(!debugger_write(theirs + CODE, &word, sizeof(word)));
	ck_assert_uint_eq(memory[CODE], 0x11);
	debugger_note(9, _IOC(_IOC_READ | _IOC_WRITE, 'F', DRIVER_FREE, sizeof(freed)), freed);
	ck_assert(debugger_has(CODE, CODE_BYTES));
}

TEST(exception, without_a_save_area_exceptions_are_the_drivers)
{
	debugger_reset(execute);
	ck_assert(!exception_open(SMS));
	note_alloc(0x83de, DEBUGGER, 0);
	note_alloc(0x3e, AREA, (WARPS_BYTES + 4095) & ~4095u);
	note_event();
	/* What the processor does not see there is no save area. */
	note_map(AREA, 0x1000, WARPS_BYTES);
	ck_assert(!exception_open(SMS));
}

#if SCARCE_POSSIBLE
TEST(exception_2, without_a_thread_nothing_is_left_open)
{
	unsigned before = fds_count();
	struct rlimit limit, none;
	void *volatile room;
	bool opened;

	put_handler();
	/* There is memory, but not for a stack. */
	mallopt(M_MMAP_THRESHOLD, 1 << 25);
	mallopt(M_TRIM_THRESHOLD, 1 << 28);
	room = malloc(8 << 20);
	free(room);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	opened = exception_open(SMS);
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
	ck_assert(!opened);
	ck_assert_uint_eq(fds_count(), before);
}
#endif

TEST(exception_3, codes_are_those_of_the_driver)
{
	ck_assert_int_eq(finding_code(0x300000e, true), CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(finding_code(0x9, true), CUDA_ERROR_ILLEGAL_INSTRUCTION);
	ck_assert_int_eq(finding_code(0x10, true), CUDA_ERROR_INVALID_ADDRESS_SPACE);
	for (uint32_t error = 0; error < 64; error++)
		ck_assert(backend_is_fatal(finding_code(error, true)));
}

int main(void)
{
	Suite *suite = suite_create("server/backend/exception");
	TCase *tests = tcase_create("exception");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add(tests, "exception");
#if SCARCE_POSSIBLE
	suite_add(tests, "exception_2");
#endif
	suite_add(tests, "exception_3");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
