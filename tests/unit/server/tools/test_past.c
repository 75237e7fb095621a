// What leads programs past the service's library: executables with lists of folders, whole and
// broken; scripts; processes of a machine of files.

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/tools/past.h"
#include "tests/lib/folder.h"
#include "tests/lib/suite.h"

static char *folder;

static void set_up(void)
{
	folder = folder_enter();
	folder_shell("mkdir ours theirs none; echo other >theirs/libcuda.so.1");
	folder_put_shim("ours/libcuda.so.1", "");
}

/* An executable that says one thing to the loader. */
static struct {
	Elf64_Ehdr header;
	Elf64_Phdr segments[2];
	Elf64_Dyn entries[4];
	char strings[128];
} image;

#define BASE 0x400000u

static void write_image(size_t bytes)
{
	FILE *file = fopen("program", "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(&image, 1, bytes, file), bytes);
	fclose(file);
}

static void make_program(int64_t tag, const char *text, int64_t second)
{
	memset(&image, 0, sizeof(image));
	memcpy(image.header.e_ident, ELFMAG, SELFMAG);
	image.header.e_ident[EI_CLASS] = ELFCLASS64;
	image.header.e_ident[EI_DATA] = ELFDATA2LSB;
	image.header.e_phentsize = sizeof(Elf64_Phdr);
	image.header.e_phnum = 2;
	image.header.e_phoff = sizeof(image.header);
	image.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_vaddr = BASE, .p_filesz = sizeof(image)};
	image.segments[1] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
		.p_offset = (uint64_t)((char *)image.entries - (char *)&image),
		.p_filesz = sizeof(image.entries)};
	image.entries[0] = (Elf64_Dyn){
		.d_tag = DT_STRTAB, .d_un.d_val = BASE + (uint64_t)(image.strings - (char *)&image)};
	image.entries[1] = (Elf64_Dyn){.d_tag = tag, .d_un.d_val = 1};
	image.entries[2] = (Elf64_Dyn){.d_tag = second, .d_un.d_val = 0};
	snprintf(image.strings + 1, sizeof(image.strings) - 1, "%s", text);
	write_image(sizeof(image));
}

static const struct {
	int64_t tag;
	const char *text;
	int64_t second;
	enum past past;
} programs[] = {
	{DT_RPATH, "theirs", DT_NULL, PAST_FOLDER},
	{DT_RPATH, "none:$ORIGIN/theirs:ours", DT_NULL, PAST_FOLDER},
	{DT_RPATH, "${ORIGIN}/theirs", DT_NULL, PAST_FOLDER},
	{DT_RPATH, "ours:theirs", DT_NULL, PAST_NOTHING},
	{DT_RPATH, "none", DT_NULL, PAST_NOTHING},
	{DT_RPATH, "", DT_NULL, PAST_NOTHING},
	{DT_RPATH, "$NOTHING/theirs", DT_NULL, PAST_NOTHING},
	/* LD_LIBRARY_PATH comes before it. */
	{DT_RUNPATH, "theirs", DT_NULL, PAST_NOTHING},
	{DT_RPATH, "theirs", DT_RUNPATH, PAST_NOTHING},
	{DT_NEEDED, "libcuda.so.1", DT_NULL, PAST_NOTHING},
	{DT_NEEDED, "theirs/libcuda.so.1", DT_NULL, PAST_NAME},
	{DT_NEEDED, "ours/libcuda.so.1", DT_NULL, PAST_NOTHING},
	{DT_NEEDED, "theirs/libother.so.1", DT_NULL, PAST_NOTHING},
};

TEST_LOOP(past, an_executable_is_looked_at, 0, sizeof(programs) / sizeof(programs[0]))
{
	char library[PATH_MAX] = "";

	make_program(programs[_i].tag, programs[_i].text, programs[_i].second);
	ck_assert_int_eq(past_of_program("./program", library), programs[_i].past);
	if (programs[_i].past != PAST_NOTHING)
		ck_assert_msg(strstr(library, "theirs/libcuda.so.1") != NULL, "%s", library);
}

/* Whatever is in the file. */
TEST(past, a_broken_executable_has_nothing)
{
	unsigned char *bytes = (unsigned char *)&image;
	char library[PATH_MAX];

	ck_assert_int_eq(past_of_program("./program", library), PAST_NOTHING);
	make_program(DT_RPATH, "theirs", DT_NULL);
	for (size_t size = 0; size < sizeof(image) - sizeof(image.strings); size += 7) {
		write_image(size);
		ck_assert_int_eq(past_of_program("./program", library), PAST_NOTHING);
	}
	for (size_t i = 0; i < sizeof(image); i++) {
		unsigned char was = bytes[i];

		bytes[i] = 0xff;
		write_image(sizeof(image));
		past_of_program("./program", library);
		bytes[i] = was;
	}
	/* No string ends. */
	memset(image.strings, 'x', sizeof(image.strings));
	write_image(sizeof(image));
	ck_assert_int_eq(past_of_program("./program", library), PAST_NOTHING);
}

static const struct {
	const char *line, *program; /* NULL: it is no script */
} scripts[] = {
	{"#!/bin/sh\necho", "/bin/sh"},
	{"#! /usr/bin/python3 -u\n", "/usr/bin/python3"},
	{"#!/usr/bin/env python3\n", "python3"},
	{"#!/usr/bin/env -S A=1 python3 -u\n", "python3"},
	{"#!/usr/bin/env\n", NULL},
	{"#!\n", NULL},
	{"#", NULL},
	{"", NULL},
	{"text\n", NULL},
};

TEST_LOOP(past, the_program_of_a_script_is_found, 0, sizeof(scripts) / sizeof(scripts[0]))
{
	char program[PATH_MAX];
	FILE *file = fopen("script", "we");

	fputs(scripts[_i].line, file);
	fclose(file);
	ck_assert_int_eq(past_interpreter("script", program), scripts[_i].program != NULL);
	if (scripts[_i].program)
		ck_assert_str_eq(program, scripts[_i].program);
}

static char seen[256];

static void note(void *context, pid_t pid, const char *name)
{
	size_t used = strlen(seen);

	ck_assert_ptr_eq(context, folder);
	snprintf(seen + used, sizeof(seen) - used, "%d %s;", (int)pid, name);
}

static void make_process(int pid, const char *library, const char *program)
{
	char line[1024];

	snprintf(line, sizeof(line),
		"mkdir -p proc/%d && echo name%d >proc/%d/comm && ln -s %s proc/%d/exe && "
		"printf '7f00-7f01 r-xp 00000000 00:00 0 \\n7f01-7f02 r-xp 00000000 08:01 5   %s/%s\\n"
		"7f02-7f03 rw-p 00000000 08:01 5   %s/%s\\n' >proc/%d/maps",
		pid, pid, pid, program, pid, folder, library, folder, library, pid);
	folder_shell(line);
}

TEST(past, processes_with_another_library_are_found)
{
	seen[0] = '\0';
	make_process(5, "theirs/libcuda.so.1", "/usr/bin/python3");
	make_process(6, "ours/libcuda.so.1", "/usr/bin/python3");
	make_process(7, "theirs/libcuda.so.1", "/usr/sbin/frmps-server");
	make_process(8, "theirs/libother.so.1", "/usr/bin/python3");
	folder_shell("mkdir -p proc/9 proc/self");
	past_of_processes(folder, note, folder);
	ck_assert_str_eq(seen, "5 name5;");
	past_of_processes("/nonexistent", note, folder);
}

int main(void)
{
	Suite *suite = suite_create("past");
	TCase *tests = suite_case(suite, "past");

	tcase_add_checked_fixture(tests, set_up, folder_leave);
	suite_add(tests, "past");
	return suite_run(suite);
}
