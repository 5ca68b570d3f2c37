//! Stores as a whole: open and close, keyspaces, snapshots, figures.

use std::{fmt::Write as _, os::unix::ffi::OsStringExt as _, path::PathBuf};

use jni::{
    EnvUnowned,
    objects::{JByteArray, JByteBuffer, JClass},
    sys::{jboolean, jint, jlong},
};
use kvilt::{Damage, Db, Env, Error, Result, Unit};

use crate::{View, border, packed, settings};

/// Which border this library has.
pub(crate) extern "system" fn version(_: EnvUnowned<'_>, _: JClass<'_>) -> jint {
    border::BORDER_VERSION
}

/// Panics, for the test that no panic crosses the border.
pub(crate) extern "system" fn panic<'l>(mut env: EnvUnowned<'l>, _: JClass<'l>, text: JByteArray<'l>) {
    border::call_java(&mut env, (), |env| {
        let text = env.convert_byte_array(&text)?;
        panic!("{}", String::from_utf8_lossy(&text))
    });
}

/// Where a direct buffer lies, for buffers that Java keeps for long.
pub(crate) extern "system" fn address<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    buffer: JByteBuffer<'l>,
) -> jlong {
    border::call_java(&mut env, 0, |env| border::address(env, &buffer))
}

/// A budget and threads that stores share.
pub(crate) extern "system" fn open_env(mut env: EnvUnowned<'_>, _: JClass<'_>, bytes: jlong) -> jlong {
    border::call(&mut env, 0, || Ok(border::give(Env::new(bytes.max(0) as u64)?)))
}

pub(crate) extern "system" fn env_budget(mut env: EnvUnowned<'_>, _: JClass<'_>, shared: jlong) -> jlong {
    border::call(&mut env, 0, || {
        Ok(border::with(shared, |shared: &Env| shared.memory_budget_bytes()) as jlong)
    })
}

pub(crate) extern "system" fn env_used(mut env: EnvUnowned<'_>, _: JClass<'_>, shared: jlong) -> jlong {
    border::call(&mut env, 0, || Ok(border::with(shared, |shared: &Env| shared.memory_used_bytes()) as jlong))
}

pub(crate) extern "system" fn free_env(mut env: EnvUnowned<'_>, _: JClass<'_>, shared: jlong) {
    border::call(&mut env, (), || {
        drop(border::take::<Env>(shared));
        Ok(())
    });
}

/// Opens a store; `settings` is a packed list of names and values, `shared` an `Env` or 0.
pub(crate) extern "system" fn open<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    path: JByteArray<'l>,
    settings: JByteArray<'l>,
    shared: jlong,
) -> jlong {
    border::call_java(&mut env, 0, |env| {
        let (path, settings) = (env.convert_byte_array(&path)?, env.convert_byte_array(&settings)?);
        let mut builder = Db::builder(path_of(path));
        if shared != 0 {
            builder = border::with(shared, |shared: &Env| builder.env(shared));
        }
        let settings = packed::unpack(&settings)?;
        let settings = settings.into_iter().map(text).collect::<Result<Vec<_>>>()?;
        let db = settings::apply(builder, &settings)?.open()?;
        Ok(border::give(View::now(&db, db.default_keyspace())))
    })
}

/// Closes the store; handles stay, and whatever they are used for fails as closed.
pub(crate) extern "system" fn close(mut env: EnvUnowned<'_>, _: JClass<'_>, view: jlong) {
    border::call(&mut env, (), || border::with(view, |view: &View| Ok(view.db.close()?)));
}

pub(crate) extern "system" fn free_view(mut env: EnvUnowned<'_>, _: JClass<'_>, view: jlong) {
    border::call(&mut env, (), || {
        drop(border::take::<View>(view));
        Ok(())
    });
}

/// The name of the engine.
pub(crate) extern "system" fn engine<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
) -> JByteArray<'l> {
    answer(&mut env, view, |view| Ok(view.db.engine_name().as_bytes().to_vec()))
}

/// A keyspace, made if there is none.
pub(crate) extern "system" fn keyspace<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    name: JByteArray<'l>,
) -> jlong {
    border::call_java(&mut env, 0, |env| {
        let name = env.convert_byte_array(&name)?;
        border::with(view, |view: &View| {
            let keyspace = view.db.keyspace(text(&name)?)?;
            Ok(border::give(View::now(&view.db, keyspace)))
        })
    })
}

/// The names of all keyspaces, packed.
pub(crate) extern "system" fn keyspaces<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
) -> JByteArray<'l> {
    answer(&mut env, view, |view| {
        let mut names = Vec::new();
        for name in view.db.keyspaces()? {
            packed::push(&mut names, Some(name.as_bytes()))?;
        }
        Ok(names)
    })
}

pub(crate) extern "system" fn drop_keyspace<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    name: JByteArray<'l>,
) -> jboolean {
    border::call_java(&mut env, false, |env| {
        let name = env.convert_byte_array(&name)?;
        border::with(view, |view: &View| Ok(view.db.drop_keyspace(text(&name)?)?))
    })
}

/// The same keyspace as of now, or of the view's own moment.
pub(crate) extern "system" fn snapshot(mut env: EnvUnowned<'_>, _: JClass<'_>, view: jlong) -> jlong {
    border::call(&mut env, 0, || {
        border::with(view, |view: &View| {
            let moment = view.moment();
            // One that could not be taken says so when it is used, and Java wants to know now.
            moment.iter().limit(0).visit(|_, _| std::ops::ControlFlow::Break(()))?;
            Ok(border::give(View { db: view.db.clone(), keyspace: view.keyspace.clone(), at: Some(moment) }))
        })
    })
}

/// The moment of one view, in the keyspace of another.
pub(crate) extern "system" fn snapshot_of(
    mut env: EnvUnowned<'_>,
    _: JClass<'_>,
    moment: jlong,
    keyspace: jlong,
) -> jlong {
    border::call(&mut env, 0, || {
        let keyspace = border::with(keyspace, |view: &View| view.keyspace.clone());
        border::with(moment, |view: &View| {
            let at = view.moment().keyspace(&keyspace);
            at.iter().limit(0).visit(|_, _| std::ops::ControlFlow::Break(()))?;
            Ok(border::give(View { db: view.db.clone(), keyspace, at: Some(at) }))
        })
    })
}

pub(crate) extern "system" fn sync(mut env: EnvUnowned<'_>, _: JClass<'_>, view: jlong) {
    border::call(&mut env, (), || border::with(view, |view: &View| Ok(view.db.sync()?)));
}

pub(crate) extern "system" fn checkpoint<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    path: JByteArray<'l>,
) {
    border::call_java(&mut env, (), |env| {
        let path = path_of(env.convert_byte_array(&path)?);
        border::with(view, |view: &View| Ok(view.db.checkpoint_to(path)?))
    });
}

/// Every figure, a line each: name, value, unit, whether it is a gauge, help; by tabs.
pub(crate) extern "system" fn stats<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
) -> JByteArray<'l> {
    answer(&mut env, view, |view| {
        let mut lines = String::new();
        for figure in view.db.stats().figures() {
            let unit = match figure.unit() {
                Unit::Bytes => "bytes",
                Unit::Micros => "us",
                Unit::Count => "count",
            };
            let (name, value, gauge) = (figure.name, figure.value, figure.is_gauge());
            let _ = writeln!(lines, "{name}\t{value}\t{unit}\t{gauge}\t{}", figure.help);
        }
        Ok(lines.into_bytes())
    })
}

/// What the store holds, packed: whether that is exact, bytes of all files, chunks; then of each keyspace
/// name, rows, bytes of rows, bytes of files.
pub(crate) extern "system" fn describe<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
    is_deep: jboolean,
) -> JByteArray<'l> {
    answer(&mut env, view, |view| {
        let description = view.db.describe_with(is_deep, |_| true)?;
        let mut told = vec![
            description.is_exact.to_string(),
            description.file_bytes().to_string(),
            description.chunks.to_string(),
        ];
        for keyspace in &description.keyspaces {
            told.push(keyspace.name.clone());
            told.extend([keyspace.rows, keyspace.row_bytes, keyspace.file_bytes].map(|n| n.to_string()));
        }
        pack_all(&told)
    })
}

/// What a check found, packed: files, bytes and entries that were read, then a line for each damage.
pub(crate) extern "system" fn check<'l>(
    mut env: EnvUnowned<'l>,
    _: JClass<'l>,
    view: jlong,
) -> JByteArray<'l> {
    answer(&mut env, view, |view| {
        let report = view.db.check()?;
        let mut told = [report.files, report.bytes, report.entries].map(|n| n.to_string()).to_vec();
        told.extend(report.damages.iter().map(told_of));
        pack_all(&told)
    })
}

/// Bytes that a view gives, as an array.
fn answer<'l>(
    env: &mut EnvUnowned<'l>,
    view: jlong,
    give: impl FnOnce(&View) -> Result<Vec<u8>>,
) -> JByteArray<'l> {
    border::call_java(env, JByteArray::null(), |env| {
        let bytes = border::with(view, give)?;
        border::byte_array(env, &bytes)
    })
}

/// A damage in a line.
fn told_of(damage: &Damage) -> String {
    let place = match (&damage.file, damage.offset) {
        (Some(file), Some(offset)) => format!(" (file {file}, offset {offset})"),
        (Some(file), None) => format!(" (file {file})"),
        (None, _) => String::new(),
    };
    format!("{}: {}{place}", damage.what, damage.message)
}

fn pack_all(items: &[String]) -> Result<Vec<u8>> {
    let mut list = Vec::new();
    for item in items {
        packed::push(&mut list, Some(item.as_bytes()))?;
    }
    Ok(list)
}

/// A path, of the bytes that Java encoded it to.
fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Error::invalid("a name is no text in UTF-8"))
}
