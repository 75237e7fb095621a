// See code.h. The kernels are an array that is sorted by address. Faults search the array. The lock
// is a leaf, and the driver is never called under it.

#include "server/backend/cuda/code.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/hash.h"
#include "server/backend/elf.h"
#include "server/grow.h"
#include "server/log.h"
#include "server/search.h"

#define TEXT ".text."

/* ---- lengths ---- */

struct code_length {
	uint64_t name, bytes; /* name: the hash of the name */
};

/* Two kernels of one module with the same hash count as the shorter. */
static uint64_t hash(const char *text)
{
	return hash_add(HASH_START, text, strlen(text));
}

static void add_length(struct code_lengths *lengths, uint64_t name, uint64_t bytes)
{
	/* Otherwise the kernel is unknown. */
	if (grow(&lengths->at, lengths->count, &lengths->room, sizeof(*lengths->at)))
		lengths->at[lengths->count++] = (struct code_length){name, bytes};
}

/* By name, the shortest first. */
static int compare_lengths(const void *a, const void *b)
{
	const struct code_length *one = a, *other = b;

	if (one->name != other->name)
		return one->name < other->name ? -1 : 1;
	return one->bytes < other->bytes ? -1 : one->bytes > other->bytes;
}

void code_lengths_add(struct code_lengths *lengths, const uint8_t *cubin, size_t bytes)
{
	struct elf elf;
	Elf64_Shdr names;
	uint64_t left = bytes, length; /* remaining bytes for names, as names may overlap; a name's length */

	if (!elf_open(cubin, bytes, &elf))
		return;
	names = elf_section(&elf, elf.names);
	for (uint64_t i = 0; i < elf.count; i++) {
		Elf64_Shdr section = elf_section(&elf, i);
		/* Code without bytes in the image could be of any length. */
		bool is_code = section.sh_type != SHT_NOBITS && elf_section_begins(&elf, &section, TEXT);
		const char *name = is_code ? elf_text(&elf, &names, section.sh_name) : NULL;

		if (!is_code)
			continue;
		length = name ? strlen(name) : bytes;
		if (length >= left)
			break;
		left -= length + 1;
		add_length(lengths, hash(name + strlen(TEXT)), section.sh_size);
	}
}

void code_lengths_sort(struct code_lengths *lengths)
{
	if (lengths->count)
		qsort(lengths->at, lengths->count, sizeof(lengths->at[0]), compare_lengths);
}

uint64_t code_length(const struct code_lengths *lengths, const char *kernel)
{
	uint64_t name = hash(kernel);
	uint32_t from = 0, to = lengths->count;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;

		if (lengths->at[middle].name < name)
			from = middle + 1;
		else
			to = middle;
	}
	return from < lengths->count && lengths->at[from].name == name ? lengths->at[from].bytes : 0;
}

void code_lengths_deinit(struct code_lengths *lengths)
{
	free(lengths->at);
	*lengths = (struct code_lengths){0};
}

/* ---- kernels ---- */

static struct {
	pthread_mutex_t lock;
	struct code *at; /* by entry */
	uint32_t count, room;
} codes = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Under the lock. Return: of the first kernel that begins behind the address */
static uint32_t above(uint64_t address)
{
	return search_above(codes.at, codes.count, sizeof(*codes.at), offsetof(struct code, entry), address);
}

void code_note(const struct code *code, const char *kernel)
{
	uint32_t at;

	pthread_mutex_lock(&codes.lock);
	at = above(code->entry);
	if (!grow(&codes.at, codes.count, &codes.room, sizeof(*codes.at))) {
		log_warning("no memory to record the place of a kernel: its faults cannot be attributed");
	} else {
		memmove(&codes.at[at + 1], &codes.at[at], (codes.count - at) * sizeof(*code));
		codes.at[at] = *code;
		snprintf(codes.at[at].kernel, sizeof(codes.at[at].kernel), "%s", kernel);
		codes.count++;
	}
	pthread_mutex_unlock(&codes.lock);
}

void code_forget(const struct backend_module *module)
{
	uint32_t left = 0;

	pthread_mutex_lock(&codes.lock);
	for (uint32_t i = 0; i < codes.count; i++)
		if (codes.at[i].module != module)
			codes.at[left++] = codes.at[i];
	codes.count = left;
	pthread_mutex_unlock(&codes.lock);
}

/* Under the lock. A program's image gives the length: the kernel ends at the latest where the next
 * begins. */
static void take(uint32_t at, struct code *ret_code)
{
	*ret_code = codes.at[at];
	if (at + 1 < codes.count && codes.at[at + 1].entry - ret_code->entry < ret_code->bytes)
		ret_code->bytes = codes.at[at + 1].entry - ret_code->entry;
}

static bool find(uint64_t address, bool is_entry, struct code *ret_code)
{
	struct code code;
	bool found = false;
	uint32_t next;

	pthread_mutex_lock(&codes.lock);
	next = above(address);
	if (next) {
		take(next - 1, &code);
		found = is_entry ? code.entry == address : address - code.entry < code.bytes;
	}
	pthread_mutex_unlock(&codes.lock);
	if (found)
		*ret_code = code;
	return found;
}

bool code_find_entry(uint64_t entry, struct code *ret_code)
{
	return find(entry, true, ret_code);
}

bool code_find(uint64_t address, struct code *ret_code)
{
	return find(address, false, ret_code);
}
