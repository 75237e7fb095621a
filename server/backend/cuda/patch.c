// See patch.h. Additions go behind the old file: the code, a longer copy of the section names, a
// longer copy of the attributes (.nv.info) and a new section table. In place only the symbol, the
// ELF header and the numbers of registers and stack of the kernels change.
//
// The symbol stays where it is: with a new symbol behind the others, which all relocations would
// name, a cubin that was compiled as a whole jumps to address 0 (measured, driver 580).
//
// Formats are those of nvcc 11 to 13: 64-bit ELF; .nv.info is a list of records (format, attribute,
// value), those that matter here being pairs of a symbol and a number; .nv.callgraph is pairs of
// symbols, caller and callee.

#include "server/backend/cuda/patch.h"

#include <stdlib.h>
#include <string.h>

#include "server/backend/elf.h"

#define CODE_ALIGN 128u
/* As the index of the new section has to fit a symbol. */
#define SECTIONS_MAX (SHN_LORESERVE - 1u)

/* Attributes of .nv.info, with their format: two words follow. */
#define INFO_FRAME_SIZE UINT32_C(0x00081104)
#define INFO_MIN_STACK	UINT32_C(0x00081204)
#define INFO_REGISTERS	UINT32_C(0x00082f04)
#define INFO_SIZED	4u /* format of records with a size */

/* A cubin of the known form. */
struct cubin {
	struct elf elf;
	size_t bytes;
	unsigned symtab;
	Elf64_Shdr symbols, texts; /* the file's table of symbols, and that of their names */
};

/* A section without bytes in the file is empty. */
static Elf64_Shdr section(const struct cubin *cubin, unsigned index)
{
	Elf64_Shdr shdr = elf_section(&cubin->elf, index);

	if (shdr.sh_type == SHT_NOBITS || shdr.sh_type == SHT_NULL)
		shdr.sh_offset = shdr.sh_size = 0;
	return shdr;
}

/* The section of a name; 0 if there is none. */
static unsigned find_section(const struct cubin *cubin, const char *name)
{
	for (unsigned i = 1; i < cubin->elf.count; i++) {
		Elf64_Shdr shdr = elf_section(&cubin->elf, i);

		if (elf_section_is(&cubin->elf, &shdr, name))
			return i;
	}
	return 0;
}

static bool open_cubin(const uint8_t *at, size_t bytes, struct cubin *ret)
{
	struct cubin cubin = {.bytes = bytes};

	/* Numbers that do not fit the header are in the first section: then there are too many. */
	if (!elf_open(at, bytes, &cubin.elf) || cubin.elf.count != cubin.elf.header.e_shnum ||
		cubin.elf.names != cubin.elf.header.e_shstrndx || cubin.elf.count >= SECTIONS_MAX)
		return false;
	for (unsigned i = 1; i < cubin.elf.count && !cubin.symtab; i++)
		if (section(&cubin, i).sh_type == SHT_SYMTAB)
			cubin.symtab = i;
	cubin.symbols = section(&cubin, cubin.symtab);
	if (!cubin.symtab || cubin.symbols.sh_entsize != sizeof(Elf64_Sym) ||
		cubin.symbols.sh_link >= cubin.elf.count)
		return false;
	cubin.texts = section(&cubin, cubin.symbols.sh_link);
	*ret = cubin;
	return true;
}

static uint64_t count_symbols(const struct cubin *cubin)
{
	return cubin->symbols.sh_size / sizeof(Elf64_Sym);
}

/* The function of a name, undefined or defined here; 0 if there is none. */
static uint32_t find_function(const struct cubin *cubin, const char *name, bool defined)
{
	for (uint32_t i = 1; i < count_symbols(cubin); i++) {
		Elf64_Sym sym = elf_symbol(&cubin->elf, &cubin->symbols, i);

		if (ELF64_ST_TYPE(sym.st_info) == STT_FUNC && (sym.st_shndx != SHN_UNDEF) == defined &&
			elf_text_begins(&cubin->elf, &cubin->texts, sym.st_name, name, strlen(name) + 1))
			return i;
	}
	return 0;
}

bool patch_wants(const uint8_t *bytes, size_t count, const char *name)
{
	struct cubin cubin;

	return open_cubin(bytes, count, &cubin) && find_function(&cubin, name, false);
}

/* ---- attributes ---- */

/* The next record of an attribute list that is a pair. Return: its offset, `size` at the end. *at:
 * start of the next record. */
static size_t next_pair(const uint8_t *info, size_t size, size_t *at, uint32_t ret_words[3])
{
	while (*at + 4 <= size) {
		size_t begin = *at;
		uint16_t length;

		memcpy(&length, info + begin + 2, sizeof(length));
		*at += 4 + (info[begin] == INFO_SIZED ? length : 0u);
		if (info[begin] != INFO_SIZED || length != 8 || *at > size)
			continue;
		memcpy(ret_words, info + begin, 12);
		return begin;
	}
	return size;
}

static uint32_t attribute(const uint8_t *info, size_t size, uint32_t kind, uint32_t sym)
{
	uint32_t words[3];
	size_t at = 0;

	while (next_pair(info, size, &at, words) < size)
		if (words[0] == kind && words[1] == sym)
			return words[2];
	return 0;
}

/* The callers of a function, by symbol. */
struct callers {
	bool *calls; /* NULL: no memory */
	uint64_t count;
};

static struct callers find_callers(const struct cubin *cubin, uint32_t callee)
{
	uint64_t count = count_symbols(cubin);
	struct callers callers = {calloc(count, sizeof(bool)), count};
	unsigned index = find_section(cubin, ".nv.callgraph");
	Elf64_Shdr shdr = section(cubin, index);
	uint32_t pair[2];

	for (uint64_t at = 0; callers.calls && index && at + sizeof(pair) <= shdr.sh_size;
		at += sizeof(pair)) {
		memcpy(pair, cubin->elf.image + shdr.sh_offset + at, sizeof(pair));
		if (pair[1] == callee && pair[0] < count)
			callers.calls[pair[0]] = true;
	}
	return callers;
}

/* Raises the kernels' numbers to their new needs. A kernel that calls unknown functions has
 * registers enough by the calling convention; a caller that has too few gets more. */
static void raise_needs(
	const struct callers *callers, uint8_t *info, size_t size, const struct patch_function *function)
{
	uint32_t words[3];
	size_t begin, at = 0;

	while ((begin = next_pair(info, size, &at, words)) < size) {
		if (words[0] == INFO_MIN_STACK)
			words[2] += function->stack;
		else if (words[0] == INFO_REGISTERS && words[2] < function->registers &&
			 words[1] < callers->count && callers->calls[words[1]])
			words[2] = function->registers;
		memcpy(info + begin, words, sizeof(words));
	}
}

/* ---- the new file ---- */

struct build {
	const struct cubin *cubin;
	struct callers callers; /* of the function */
	uint8_t *at;
	size_t count;
};

/* Adds bytes at an alignment. Return: where. There is room. */
static uint8_t *add(struct build *build, const void *bytes, size_t count, size_t align)
{
	uint8_t *at;

	build->count = (build->count + align - 1) & ~(align - 1);
	at = build->at + build->count;
	if (bytes)
		memcpy(at, bytes, count);
	build->count += count;
	return at;
}

/* Moves a section to the end, followed by `more`. */
static Elf64_Shdr move_section(struct build *build, unsigned index, const void *more, size_t count)
{
	Elf64_Shdr shdr = section(build->cubin, index);
	uint8_t *at = add(build, build->cubin->elf.image + shdr.sh_offset, shdr.sh_size, 8);

	add(build, more, count, 1);
	shdr.sh_offset = (uint64_t)(at - build->at);
	shdr.sh_size += count;
	return shdr;
}

/* The names, with another name. @ret_name: its offset */
static Elf64_Shdr move_names(struct build *build, const char *name, uint32_t *ret_name)
{
	char text[80] = ".text.";
	size_t length = strlen(strcat(text, name)) + 1;
	Elf64_Shdr names = move_section(build, build->cubin->elf.header.e_shstrndx, text, length);

	*ret_name = (uint32_t)(names.sh_size - length);
	return names;
}

static Elf64_Shdr move_info(
	struct build *build, unsigned index, uint32_t sym, const struct patch_function *function)
{
	const uint32_t own[] = {INFO_REGISTERS, sym, function->registers, INFO_FRAME_SIZE, sym,
		function->stack, INFO_MIN_STACK, sym, function->stack};
	Elf64_Shdr info = move_section(build, index, own, sizeof(own));

	raise_needs(&build->callers, build->at + info.sh_offset, info.sh_size - sizeof(own), function);
	return info;
}

static void define(struct build *build, uint32_t sym, const struct patch_function *function)
{
	const struct cubin *cubin = build->cubin;
	uint64_t at = cubin->symbols.sh_offset + sym * sizeof(Elf64_Sym);
	Elf64_Sym entry = elf_symbol(&cubin->elf, &cubin->symbols, sym);

	entry.st_shndx = cubin->elf.header.e_shnum;
	entry.st_value = 0;
	entry.st_size = function->bytes;
	memcpy(build->at + at, &entry, sizeof(entry));
}

static void assemble(struct build *build, uint32_t sym, unsigned info, const struct patch_function *function)
{
	const struct cubin *cubin = build->cubin;
	Elf64_Ehdr header = cubin->elf.header;
	Elf64_Shdr names, infos,
		code = {.sh_type = SHT_PROGBITS,
			.sh_flags = SHF_ALLOC | SHF_EXECINSTR,
			.sh_size = function->bytes,
			.sh_link = cubin->symtab,
			.sh_info = sym,
			.sh_addralign = CODE_ALIGN};

	add(build, cubin->elf.image, cubin->bytes, 1);
	define(build, sym, function);
	code.sh_offset = (uint64_t)(add(build, function->code, function->bytes, CODE_ALIGN) - build->at);
	names = move_names(build, function->name, &code.sh_name);
	infos = move_info(build, info, sym, function);
	header.e_shoff = (uint64_t)(add(build, NULL, 0, 8) - build->at);
	for (unsigned i = 0; i < header.e_shnum; i++) {
		Elf64_Shdr shdr = elf_section(&cubin->elf, i);

		shdr = i == header.e_shstrndx ? names : i == info ? infos : shdr;
		add(build, &shdr, sizeof(shdr), 8);
	}
	add(build, &code, sizeof(code), 8);
	header.e_shnum++;
	memcpy(build->at, &header, sizeof(header));
}

CUresult patch_in(
	const uint8_t *bytes, size_t count, const struct patch_function *function, struct fatbin_bytes *ret)
{
	struct cubin cubin;
	uint32_t sym = open_cubin(bytes, count, &cubin) ? find_function(&cubin, function->name, false) : 0;
	unsigned info = sym ? find_section(&cubin, ".nv.info") : 0;
	struct build build = {.cubin = &cubin};
	uint64_t copied;
	size_t room;

	if (!info || strlen(function->name) > 64)
		return CUDA_ERROR_INVALID_IMAGE;
	copied = section(&cubin, info).sh_size + section(&cubin, cubin.elf.header.e_shstrndx).sh_size +
		 cubin.elf.header.e_shnum * sizeof(Elf64_Shdr);
	/* With sections that overlap each other, or the table of sections, an image would grow
	 * several times. */
	if (copied > count)
		return CUDA_ERROR_INVALID_IMAGE;
	room = count + function->bytes + copied + sizeof(Elf64_Shdr) + 1024;
	build.callers = find_callers(&cubin, sym);
	build.at = build.callers.calls ? calloc(1, room) : NULL;
	if (build.at) {
		assemble(&build, sym, info, function);
		*ret = (struct fatbin_bytes){build.at, build.count};
	}
	free(build.callers.calls);
	return build.at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool patch_take(const uint8_t *bytes, size_t count, const char *name, struct patch_function *ret_function)
{
	struct cubin cubin;
	uint32_t sym = open_cubin(bytes, count, &cubin) ? find_function(&cubin, name, true) : 0;
	Elf64_Sym entry = sym ? elf_symbol(&cubin.elf, &cubin.symbols, sym) : (Elf64_Sym){0};
	unsigned info = sym ? find_section(&cubin, ".nv.info") : 0;
	char relocations[80] = ".rela.text.";
	Elf64_Shdr code, infos;

	if (!info || entry.st_shndx >= cubin.elf.count || strlen(name) > 64 ||
		find_section(&cubin, strcat(relocations, name)))
		return false;
	code = section(&cubin, entry.st_shndx);
	infos = section(&cubin, info);
	*ret_function = (struct patch_function){.name = name,
		.code = bytes + code.sh_offset,
		.bytes = code.sh_size,
		.registers = attribute(bytes + infos.sh_offset, infos.sh_size, INFO_REGISTERS, sym),
		.stack = attribute(bytes + infos.sh_offset, infos.sh_size, INFO_FRAME_SIZE, sym)};
	return ret_function->registers != 0;
}
