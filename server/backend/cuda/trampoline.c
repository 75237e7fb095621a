// See trampoline.h.

#include "server/backend/cuda/trampoline.h"

#include <stdlib.h>
#include <string.h>

#include "protocol/hash.h"
#include "server/backend/cuda/cuda.h"
#include "server/backend/trampoline_image.h"
#include "server/grow.h"
#include "server/log.h"

/* Multiprocessors give out registers in steps of 8. */
#define REGISTERS_LEAST 24u
#define REGISTERS_MOST	255u
#define REGISTERS_STEP	8u
#define REGISTERS	30u

/* A block with more barriers leaves room for fewer others: 64 on a multiprocessor. */
static const uint32_t barrier_classes[] = {1, 2, 4, 8, 16};
#define BARRIERS 5u
/* A launch pays for each carried byte, and so does a change of a graph's node. Most kernels have a
 * single barrier: others have fewer sizes to choose from, and so have kernels with constants or
 * much local memory. */
enum carried_for {
	FOR_ONE_BARRIER,
	FOR_ALL,
	FOR_ONE_OR_MOST, /* barriers */
};
enum kind {
	PLAIN = 1,
	BANK = 2,
	DEEP = 4, /* with much local memory */
};
static const struct carried_class {
	uint32_t bytes;
	enum carried_for barriers;
	unsigned kinds;
} carried_classes[] = {
	{64, FOR_ONE_BARRIER, PLAIN},
	{128, FOR_ONE_BARRIER, PLAIN | BANK},
	{256, FOR_ALL, PLAIN},
	{512, FOR_ONE_BARRIER, PLAIN | BANK | DEEP},
	{1024, FOR_ONE_BARRIER, PLAIN},
	{4096, FOR_ALL, PLAIN | BANK},
	{5120, FOR_ONE_OR_MOST, PLAIN | DEEP}, /* 4096 bytes of parameters with tables of jumps: NCCL */
	{32760, FOR_ONE_OR_MOST, PLAIN},
};
#define CARRIED 8u

/* At the start, some milliseconds each. */
#define BANKS 8u
/* Bytes of local memory. A multiple of these by the number of threads that the device can have is
 * taken from its memory: 528 MiB for the first, of an H200. */
static const uint32_t local_classes[] = {2048, 4096, 8192, 16384};
#define LOCALS 4u
/* Room in a bank is given in units, so that caches never keep constants of two modules together. */
#define UNIT_BYTES 256u
#define UNITS	   (TRAMPOLINE_BANK_BYTES / UNIT_BYTES)

struct trampoline_set {
	CUlibrary library;
	struct trampoline at[REGISTERS][BARRIERS][CARRIED]; /* function NULL: not in this set */
	CUdeviceptr bank;
	bool is_taken[UNITS];
};

struct entry {
	uint64_t at;
	uint32_t carried;
};

static struct {
	struct trampoline_set plain, banks[BANKS], deep[LOCALS];
	size_t local;
	struct entry *entries; /* by address, once all are loaded */
	uint32_t entry_count, entry_room;
} trampolines;

/* ---- classes ---- */

static uint32_t registers_of(uint32_t class)
{
	uint32_t registers = REGISTERS_LEAST + class * REGISTERS_STEP;

	return registers < REGISTERS_MOST ? registers : REGISTERS_MOST;
}

static uint32_t class_of_registers(uint32_t registers)
{
	return registers <= REGISTERS_LEAST
		       ? 0
		       : (registers + REGISTERS_STEP - 1 - REGISTERS_LEAST) / REGISTERS_STEP;
}

/* The first class that is enough; BARRIERS if none is. */
static uint32_t class_of_barriers(uint32_t needed)
{
	uint32_t at = 0;

	while (at < BARRIERS && barrier_classes[at] < needed)
		at++;
	return at;
}

static bool is_made(enum kind kind, uint32_t barriers, uint32_t carried)
{
	const struct carried_class *class = &carried_classes[carried];

	if (!(class->kinds & kind))
		return false;
	switch (class->barriers) {
	case FOR_ONE_BARRIER:
		return barriers == 0;
	case FOR_ONE_OR_MOST:
		return barriers == 0 || barriers == BARRIERS - 1;
	default:
		return true;
	}
}

/* ---- loading ---- */

static bool note_entry(const struct trampoline *trampoline)
{
	if (!grow(&trampolines.entries, trampolines.entry_count, &trampolines.entry_room,
		    sizeof(*trampolines.entries)))
		return false;
	trampolines.entries[trampolines.entry_count++] =
		(struct entry){cuda_function_entry(trampoline->function), trampoline->carried};
	return true;
}

/* A launch's demands are checked against the kernel's own attributes (loader.c). */
static CUresult find_one(
	struct trampoline_set *set, const struct trampoline_class *class, int shared, struct trampoline *ret)
{
	char name[TRAMPOLINE_NAME_BYTES];
	CUresult code;

	trampoline_name(class, name);
	ret->carried = class->carried;
	code = cuda_kernel_load(set->library, name, &ret->kernel, &ret->function);
	if (!code)
		code = driver.function_set_attribute(
			ret->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared);
	if (!code)
		code = driver.function_set_attribute(
			ret->function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
	if (!code && !note_entry(ret))
		code = CUDA_ERROR_OUT_OF_MEMORY;
	return code;
}

static CUresult find_all(struct trampoline_set *set, int shared, enum kind kind, uint32_t local)
{
	CUresult code = CUDA_SUCCESS;

	for (uint32_t r = 0; r < REGISTERS; r++)
		for (uint32_t b = 0; b < BARRIERS; b++)
			for (uint32_t c = 0; !code && c < CARRIED; c++) {
				struct trampoline_class class = {
					registers_of(r), barrier_classes[b], carried_classes[c].bytes};

				if (!is_made(kind, b, c))
					continue;
				set->at[r][b][c].local = local;
				code = find_one(set, &class, shared, &set->at[r][b][c]);
			}
	return code;
}

static CUresult load(struct trampoline_set *set, int shared, enum kind kind, uint32_t local)
{
	struct trampoline_class classes[REGISTERS * BARRIERS * CARRIED];
	struct trampoline_form form = {.classes = classes, .has_bank = kind == BANK, .local = local};
	CUresult code;
	uint8_t *image;
	size_t bytes;

	for (uint32_t r = 0; r < REGISTERS; r++)
		for (uint32_t b = 0; b < BARRIERS; b++)
			for (uint32_t c = 0; c < CARRIED; c++)
				if (is_made(kind, b, c))
					classes[form.count++] = (struct trampoline_class){registers_of(r),
						barrier_classes[b], carried_classes[c].bytes};
	image = trampoline_image(&form, &bytes);
	if (!image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	code = driver.library_load(&set->library, image, NULL, NULL, 0, NULL, NULL, 0);
	free(image);
	if (!code)
		code = find_all(set, shared, kind, local);
	if (!code && kind == BANK)
		code = driver.library_global(&set->bank, &bytes, set->library, TRAMPOLINE_BANK);
	return code;
}

static int by_address(const void *a, const void *b)
{
	const struct entry *one = a, *other = b;

	return one->at < other->at ? -1 : one->at > other->at;
}

bool trampolines_open(int shared, size_t local)
{
	CUresult code = load(&trampolines.plain, shared, PLAIN, 0);

	trampolines.local = local;
	for (uint32_t i = 0; !code && i < BANKS; i++)
		code = load(&trampolines.banks[i], shared, BANK, 0);
	for (uint32_t i = 0; !code && i < LOCALS; i++)
		code = load(&trampolines.deep[i], shared, DEEP, local_classes[i]);
	if (code) {
		log_warning("the driver does not take trampolines (code %d): it loads all modules, and each "
			    "load waits for the kernels that run",
			(int)code);
		trampolines_close();
		return false;
	}
	qsort(trampolines.entries, trampolines.entry_count, sizeof(struct entry), by_address);
	return true;
}

void trampolines_close(void)
{
	free(trampolines.entries);
	memset(&trampolines, 0, sizeof(trampolines));
}

/* ---- use ---- */

static bool is_free(const struct trampoline_set *set, uint32_t first, uint32_t count)
{
	bool is_taken = first > UNITS || count > UNITS - first;

	for (uint32_t i = first; !is_taken && i < first + count; i++)
		is_taken = set->is_taken[i];
	return !is_taken;
}

static void mark(const struct trampoline_room *room, bool is_taken)
{
	uint32_t first = room->offset / UNIT_BYTES, end = (room->offset + room->bytes - 1) / UNIT_BYTES;

	for (uint32_t i = first; i <= end; i++)
		room->set->is_taken[i] = is_taken;
}

bool trampolines_take_same_room(struct trampoline_room *room)
{
	uint32_t first = room->offset / UNIT_BYTES, count = (room->bytes + UNIT_BYTES - 1) / UNIT_BYTES;

	if (!room->bank || room->bank > BANKS || room->offset % UNIT_BYTES ||
		!is_free(&trampolines.banks[room->bank - 1], first, count))
		return false;
	room->set = &trampolines.banks[room->bank - 1];
	mark(room, true);
	return true;
}

bool trampolines_take_room(uint32_t bytes, uint32_t most, uint64_t owner, struct trampoline_room *ret)
{
	uint64_t first = hash_add(HASH_START, &owner, sizeof(owner));
	uint32_t offsets = most / UNIT_BYTES + 1;

	for (uint32_t i = 0; i < BANKS * offsets; i++) {
		*ret = (struct trampoline_room){.bank = (uint32_t)(first + i / offsets) % BANKS + 1,
			.offset = (uint32_t)((first >> 32) + i) % offsets * UNIT_BYTES,
			.bytes = bytes};
		if (trampolines_take_same_room(ret))
			return true;
	}
	return false;
}

void trampolines_give_room(const struct trampoline_room *room)
{
	if (room->set)
		mark(room, false);
}

uint64_t trampolines_room_at(const struct trampoline_room *room)
{
	return room->set->bank + room->offset;
}

/* The trampoline of a class that carries least. */
static const struct trampoline *find_smallest(
	const struct trampoline_set *set, uint32_t registers, uint32_t barriers, uint32_t carried)
{
	const struct trampoline *of = set->at[registers][barriers];

	for (uint32_t c = 0; c < CARRIED; c++)
		if (of[c].function && carried_classes[c].bytes >= carried)
			return &of[c];
	return NULL;
}

/* NULL: there is none with so much local memory. */
static const struct trampoline_set *set_for(const struct trampoline_set *set, uint32_t local)
{
	if (local <= trampolines.local)
		return set ? set : &trampolines.plain;
	for (uint32_t i = 0; !set && i < LOCALS; i++)
		if (local_classes[i] >= local)
			return &trampolines.deep[i];
	return NULL;
}

const struct trampoline *trampolines_find(const struct trampoline_set *set, uint32_t local,
	uint32_t registers, uint32_t barriers, uint32_t carried)
{
	const struct trampoline_set *in = set_for(set, local);
	uint32_t r = class_of_registers(registers), b = class_of_barriers(barriers);
	const struct trampoline *found;

	if (!in || r >= REGISTERS || b >= BARRIERS)
		return NULL;
	found = find_smallest(in, r, b, carried);
	return found ? found : find_smallest(in, r, BARRIERS - 1, carried);
}

uint32_t trampoline_carries(uint64_t entry)
{
	const struct entry wanted = {.at = entry};
	const struct entry *found = trampolines.entry_count
					    ? bsearch(&wanted, trampolines.entries, trampolines.entry_count,
						      sizeof(wanted), by_address)
					    : NULL;

	return found ? found->carried : 0;
}
